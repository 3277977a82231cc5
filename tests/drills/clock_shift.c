/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a process: its calendar clock is off by as many seconds as the first eight bytes
 * of the file $CLOCK_SHIFT say (a native integer, mapped, so that a change is seen at once, by
 * children too). The monotonic clock is left alone, as it is when an administrator sets the time.
 * Deadlines on the calendar clock are translated; those on the monotonic one are known by being
 * small.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const time_t CALENDAR = 1000000000;
static const int64_t *shift_s;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_pthread_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *,
                                          const struct timespec *);
static int (*real_cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);
static int (*real_pthread_mutex_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_mtx_timedlock)(mtx_t *, const struct timespec *);

/* Finds the function of this name that the preload hides. */
#define FIND(name) (*(void **)&real_##name = dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);

    FIND(clock_gettime);
    FIND(clock_nanosleep);
    /* the older version of this name has another layout */
    *(void **)&real_pthread_cond_timedwait =
        dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (real_pthread_cond_timedwait == NULL) FIND(pthread_cond_timedwait);
    FIND(cnd_timedwait);
    FIND(sem_timedwait);
    FIND(pthread_mutex_timedlock);
    FIND(mtx_timedlock);
    if (file >= 0) {
        void *place = mmap(NULL, sizeof *shift_s, PROT_READ, MAP_SHARED, file, 0);
        if (place != MAP_FAILED) shift_s = place;
        close(file);
    }
}

static int64_t shift(void) {
    return shift_s == NULL ? 0 : *(volatile const int64_t *)shift_s;
}

static const struct timespec *kernel_time(const struct timespec *given, struct timespec *room) {
    if (given == NULL || given->tv_sec < CALENDAR) return given;
    *room = *given;
    room->tv_sec -= shift();
    return room;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int result;

    if (real_clock_gettime == NULL) begin();
    result = real_clock_gettime(clock, found);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        found->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (found != NULL) *found = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *found, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, found) == 0 ? base : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted,
                    struct timespec *left) {
    struct timespec room;

    if (clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME)) wanted = kernel_time(wanted, &room);
    return real_clock_nanosleep(clock, flags, wanted, left);
}

/* Waits that differ in what is waited for: WITH_LOCK on a condition, ALONE on one thing. */
#define WITH_LOCK(name, condition, lock)                                                     \
    int name(condition *restrict first, lock *restrict second,                               \
             const struct timespec *restrict until) {                                        \
        struct timespec room;                                                                \
        return real_##name(first, second, kernel_time(until, &room));                        \
    }
#define ALONE(name, thing)                                                                   \
    int name(thing *restrict first, const struct timespec *restrict until) {                 \
        struct timespec room;                                                                \
        return real_##name(first, kernel_time(until, &room));                                \
    }

WITH_LOCK(pthread_cond_timedwait, pthread_cond_t, pthread_mutex_t)
WITH_LOCK(cnd_timedwait, cnd_t, mtx_t)
ALONE(sem_timedwait, sem_t)
ALONE(pthread_mutex_timedlock, pthread_mutex_t)
ALONE(mtx_timedlock, mtx_t)
