-- SPDX-License-Identifier: Apache-2.0
-- A small shop to change rows in; PostgreSQL runs this when its volume is new.
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    email text UNIQUE,
    since date NOT NULL DEFAULT current_date
);

CREATE TABLE items (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text NOT NULL,
    price numeric(10, 2) NOT NULL,
    details jsonb
);

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    item_id bigint NOT NULL REFERENCES items,
    quantity integer NOT NULL CHECK (quantity > 0),
    placed_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO customers (name, email)
SELECT 'Customer ' || n, 'customer' || n || '@example.com' FROM generate_series(1, 1000) AS n;

INSERT INTO items (title, price, details)
SELECT 'Item ' || n, n % 90 + 0.99, jsonb_build_object('shelf', n % 12) FROM generate_series(1, 200) AS n;

INSERT INTO orders (customer_id, item_id, quantity)
SELECT n % 1000 + 1, n % 200 + 1, n % 4 + 1 FROM generate_series(1, 5000) AS n;
