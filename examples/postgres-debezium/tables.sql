-- The tables of the example. PostgreSQL needs wal_level = logical.
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    country text NOT NULL,
    photo bytea                          -- the job does not read it
);
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL,
    amount numeric(10, 2) NOT NULL,
    placed timestamptz(3) NOT NULL,
    note text                            -- may be large
);
-- PostgreSQL then logs a large note even if an update leaves it unchanged.
ALTER TABLE orders REPLICA IDENTITY FULL;

-- A column of each type that Debezium reads and Rowkind can use.
CREATE EXTENSION citext;
CREATE EXTENSION hstore;
CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE types (
    id bigint PRIMARY KEY,
    a_boolean boolean,
    a_smallint smallint,
    an_integer integer,
    a_bigint bigint,
    an_oid oid,
    a_real real,
    a_double double precision,
    a_numeric numeric(20, 4),
    a_free_numeric numeric,
    a_money money,
    a_char char(5),
    a_varchar varchar(20),
    a_text text,
    a_citext citext,
    an_enum mood,
    a_uuid uuid,
    a_json json,
    a_jsonb jsonb,
    an_xml xml,
    an_hstore hstore,
    an_ltree ltree,
    a_bytea bytea,
    a_bit bit,
    a_bits bit(12),
    a_varbit bit varying(8),
    a_date date,
    a_time3 time(3),
    a_time time,
    a_timetz timetz,
    a_timestamp3 timestamp(3),
    a_timestamp timestamp,
    a_timestamptz3 timestamptz(3),
    a_timestamptz timestamptz,
    an_interval interval,
    an_inet inet,
    a_cidr cidr,
    a_macaddr macaddr,
    a_macaddr8 macaddr8,
    a_point point,
    an_int4range int4range,
    an_int8range int8range,
    a_numrange numrange,
    a_daterange daterange,
    a_tsrange tsrange,
    a_tstzrange tstzrange,
    an_int_array integer[],
    a_text_array text[]
);

-- The sink connector creates the tables of results. It would create `types` with text in most columns.
CREATE SCHEMA results;
CREATE TABLE results.types (LIKE types INCLUDING ALL);
ALTER TABLE results.types ALTER a_varbit TYPE bytea USING NULL;

INSERT INTO customers (id, name, country) VALUES
    (1, 'Ada', 'UK'), (2, 'Blaise', 'FR'), (3, 'Grace', 'US'), (4, 'Alan', 'UK');
INSERT INTO orders (id, customer_id, amount, placed) VALUES
    (1, 1, 12.50, '2026-01-05 12:00Z'), (2, 1, 7.00, '2026-01-05 12:01Z'), (3, 2, 40.00, '2026-01-05 12:02Z'),
    (4, 4, 99.90, '2026-01-05 12:03Z'), (5, 4, 9.99, '2026-01-05 12:04Z'), (6, 3, 5.25, '2026-01-05 12:05Z');
INSERT INTO types VALUES (
    1, true, -7, 70000, 9007199254740993, 4000000000, 0.5, 0.1, 1234567890123456.7891, 3.141592653589793, '12.34',
    'char', 'varchar', 'text é', 'CiText', 'happy', '00000000-0000-0000-0000-00000000002a',
    '{"a": 1}', '{"b": [1, 2.50]}', '<a>1</a>', 'k => v', 'top.science', '\x00ff', '1', '101010101010', '10101',
    '2026-02-03', '12:34:56.789', '12:34:56.789123', '12:34:56.789123+02',
    '2026-01-05 12:00:00.123', '2026-01-05 12:00:00.123456', '2026-01-05 12:00:00.123+01',
    '2026-01-05 12:00:00.123456+01', '1 year 2 months 3 days 04:05:06.789', '192.168.0.1/24', '10.0.0.0/8',
    '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '(1.5,2)', '[1,5)', '[1,5)', '[1.5,2.5]', '[2026-01-01,2026-02-01)',
    '[2026-01-01 12:00,2026-01-02 12:00)', '[2026-01-01 12:00Z,2026-01-02 12:00Z)', '{1,2,NULL}', '{a,NULL,"b c"}');
INSERT INTO types (id) VALUES (2);
