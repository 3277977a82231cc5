# SPDX-License-Identifier: Apache-2.0
"""As much of a Kubernetes API server as a Spark driver talks to, with the rights of one Role.

Objects of the core group in one namespace: create, get, list, watch, patch, delete. What the Role
does not allow is answered with 403, as a cluster does it. Every (resource, verb) is remembered.
"""

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

Object = dict[str, Any]

PATH = re.compile(r"/api/v1/namespaces/([^/]+)/(\w+)(?:/([^/]+))?")
KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
WATCH_WAIT_S = 2.0


class Objects:
    """What the server knows, and all that happened to it, in the order of resource versions.

    Args:
        namespace: the only one.
        on_pod: told of each pod that was created and, with False, of each that was deleted.
    """

    def __init__(self, namespace: str, on_pod: Callable[[Object, bool], None]) -> None:
        self.namespace = namespace
        self._on_pod = on_pod
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str], Object] = {}
        self._events: list[tuple[str, str, Object]] = []

    @property
    def version(self) -> int:
        """Number of changes so far: the list's resource version."""
        with self._changed:
            return len(self._events)

    def create(self, resource: str, given: Object) -> Object | None:
        """The stored object; None when the name is taken."""
        stored = copy.deepcopy(given)
        meta = stored.setdefault("metadata", {})
        with self._changed:
            if (resource, meta["name"]) in self._objects:
                return None
            meta |= {"namespace": self.namespace, "uid": f"uid-{len(self._events) + 1}"}
            meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
            if resource == "pods":
                stored.setdefault("status", {"phase": "Pending"})
            self._put(resource, stored, "ADDED")
        if resource == "pods":
            self._on_pod(copy.deepcopy(stored), True)
        return stored

    def change(self, resource: str, name: str, how: Callable[[Object], None]) -> Object | None:
        """The object after `how` changed it; None when there is none."""
        with self._changed:
            found = self._objects.get((resource, name))
            if found is None:
                return None
            changed = copy.deepcopy(found)
            how(changed)
            self._put(resource, changed, "MODIFIED")
            return changed

    def delete(self, resource: str, name: str) -> Object | None:
        """The object that is gone now; None when there was none."""
        with self._changed:
            found = self._objects.pop((resource, name), None)
            if found is None:
                return None
            self._note(resource, found, "DELETED")
        if resource == "pods":
            self._on_pod(copy.deepcopy(found), False)
        return found

    def get(self, resource: str, name: str) -> Object | None:
        with self._changed:
            return self._objects.get((resource, name))

    def all(self, resource: str, selector: str = "") -> list[Object]:
        """Objects of a kind whose labels the selector takes."""
        with self._changed:
            found = [each for (kind, _), each in self._objects.items() if kind == resource]
        return [each for each in found if selects(selector, each)]

    def follow(self, resource: str, selector: str, after: int) -> Iterator[Object | None]:
        """Watch events after a resource version; None each time when nothing comes for a while."""
        while True:
            with self._changed:
                if len(self._events) <= after:
                    self._changed.wait(WATCH_WAIT_S)
                new, after = self._events[after:], len(self._events)
            for kind, what, each in new:
                if kind == resource and selects(selector, each):
                    yield {"type": what, "object": each}
            yield None

    def _put(self, resource: str, each: Object, what: str) -> None:
        self._objects[(resource, each["metadata"]["name"])] = each
        self._note(resource, each, what)

    def _note(self, resource: str, each: Object, what: str) -> None:
        each["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        self._events.append((resource, what, copy.deepcopy(each)))
        self._changed.notify_all()


def selects(selector: str, each: Object) -> bool:
    """Whether a label selector takes an object: `a=b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `notin`."""
    labels = each["metadata"].get("labels") or {}
    for term in re.findall(r"[^,()]+(?:\([^)]*\))?", selector):
        sets = re.fullmatch(r"\s*(\S+) (in|notin) \((.*)\)", term)
        if sets:
            key, word, values = sets.groups()
            if (labels.get(key) in re.split(r"\s*,\s*", values)) != (word == "in"):
                return False
        elif "!=" in term:
            key, value = term.split("!=")
            if labels.get(key) == value:
                return False
        elif "=" in term:
            key, value = re.split("==?", term)
            if labels.get(key) != value:
                return False
        elif (term.lstrip("!") in labels) == term.startswith("!"):
            return False
    return True


class ApiServer:
    """Serves `objects` on a port of 127.0.0.1 while the context is open.

    Args:
        objects: what there is.
        rules: the Role's; `deny` takes rights away for a while.
    """

    def __init__(self, objects: Objects, rules: list[Object]) -> None:
        self.objects = objects
        self.allowed = {
            (resource, verb)
            for rule in rules
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        self.used: set[tuple[str, str]] = set()
        self.refused: list[tuple[str, str]] = []
        self.denied: set[tuple[str, str]] = set()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "ApiServer":
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def may(self, resource: str, verb: str) -> bool:
        """Whether the Role allows it; remembers that it was asked for."""
        self.used.add((resource, verb))
        if (resource, verb) in self.allowed - self.denied:
            return True
        self.refused.append((resource, verb))
        return False

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            api = server

        return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("get")

    def do_POST(self) -> None:
        self._serve("create")

    def do_PATCH(self) -> None:
        self._serve("patch")

    def do_PUT(self) -> None:
        self._serve("update")

    def do_DELETE(self) -> None:
        self._serve("delete")

    def _serve(self, verb: str) -> None:
        given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        place = PATH.fullmatch(url.path)
        if place is None or place.group(1) != self.api.objects.namespace:
            self._fail(404, "NotFound")
            return
        resource, name = place.group(2), place.group(3)
        if verb == "get" and not name:
            verb = "watch" if query.get("watch") == "true" else "list"
        if verb == "delete" and not name:
            verb = "deletecollection"
        if not self.api.may(resource, verb):
            self._fail(403, "Forbidden")
            return
        getattr(self, f"_{verb}")(resource, name, query, given)

    def _get(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        self._answer_one(self.api.objects.get(resource, name))

    def _list(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        version = self.api.objects.version
        found = self.api.objects.all(resource, query.get("labelSelector", ""))
        about = {"resourceVersion": str(version)}
        kind = KINDS.get(resource, resource)
        self._answer(
            200, {"apiVersion": "v1", "kind": f"{kind}List", "metadata": about, "items": found}
        )

    def _watch(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        if self.headers.get("Upgrade"):
            # no websockets here: this answer makes the client watch by plain HTTP
            self._answer(200, {})
            return
        after = int(query.get("resourceVersion") or self.api.objects.version)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        selector = query.get("labelSelector", "")
        try:
            for event in self.api.objects.follow(resource, selector, after):
                if event is not None:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _create(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        made = self.api.objects.create(resource, json.loads(given))
        if made is None:
            self._fail(409, "AlreadyExists")
        else:
            self._answer(201, made)

    def _patch(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        patch = json.loads(given)
        labels = patch.get("metadata", {}).get("labels") if isinstance(patch, dict) else None

        def merge(found: Object) -> None:
            found["metadata"].setdefault("labels", {}).update(labels or {})

        self._answer_one(self.api.objects.change(resource, name, merge))

    def _update(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        self._fail(405, "MethodNotAllowed")

    def _delete(self, resource: str, name: str, query: dict[str, str], given: bytes) -> None:
        self._answer_one(self.api.objects.delete(resource, name))

    def _deletecollection(
        self, resource: str, name: str, query: dict[str, str], given: bytes
    ) -> None:
        for each in self.api.objects.all(resource, query.get("labelSelector", "")):
            self.api.objects.delete(resource, each["metadata"]["name"])
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _answer_one(self, found: Object | None) -> None:
        if found is None:
            self._fail(404, "NotFound")
        else:
            self._answer(200, found)

    def _fail(self, code: int, reason: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
        self._answer(code, {**status, "code": code, "reason": reason, "message": reason})

    def _answer(self, code: int, body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
