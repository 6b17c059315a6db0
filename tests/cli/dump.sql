-- PostgreSQL database dump
\restrict zzk51EqbSFi9uz6dJcvsNT61ARQHlEySl0p5SyS7NbdkKLO25E1aO2JCqsXp27W
-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
-- Name: shop; Type: SCHEMA; Schema: -; Owner: postgres
CREATE SCHEMA shop;
ALTER SCHEMA shop OWNER TO postgres;
-- Name: pg_trgm; Type: EXTENSION; Schema: -; Owner: -
CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;
-- Name: EXTENSION pg_trgm; Type: COMMENT; Schema: -; Owner: 
COMMENT ON EXTENSION pg_trgm IS 'text similarity measurement and index searching based on trigrams';
-- Name: mood; Type: TYPE; Schema: shop; Owner: postgres
CREATE TYPE shop.mood AS ENUM (
    'sad',
    'ok'
);
ALTER TYPE shop.mood OWNER TO postgres;
-- Name: posint; Type: DOMAIN; Schema: shop; Owner: postgres
CREATE DOMAIN shop.posint AS integer
	CONSTRAINT posint_check CHECK ((VALUE > 0));
ALTER DOMAIN shop.posint OWNER TO postgres;
-- Name: f(integer, text[]); Type: FUNCTION; Schema: shop; Owner: postgres
CREATE FUNCTION shop.f(a integer, VARIADIC b text[] DEFAULT '{}'::text[]) RETURNS TABLE(x integer, y text)
    LANGUAGE plpgsql STABLE
    AS $$ BEGIN RETURN QUERY SELECT 1, 'a;b'; END $$;
ALTER FUNCTION shop.f(a integer, VARIADIC b text[]) OWNER TO postgres;
-- Name: sq(integer); Type: FUNCTION; Schema: shop; Owner: postgres
CREATE FUNCTION shop.sq(a integer) RETURNS integer
    LANGUAGE sql IMMUTABLE
    BEGIN ATOMIC
 SELECT (a * a);
 SELECT (a + 1);
END;
ALTER FUNCTION shop.sq(a integer) OWNER TO postgres;
-- Name: t(); Type: FUNCTION; Schema: shop; Owner: postgres
CREATE FUNCTION shop.t() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RETURN NEW; END $$;
ALTER FUNCTION shop.t() OWNER TO postgres;
SET default_tablespace = '';
SET default_table_access_method = heap;
-- Name: c; Type: TABLE; Schema: shop; Owner: postgres
CREATE TABLE shop.c (
    id bigint NOT NULL,
    name text DEFAULT 'x'::text NOT NULL,
    m shop.mood,
    p shop.posint,
    tags text[],
    j jsonb
);
ALTER TABLE shop.c OWNER TO postgres;
-- Name: TABLE c; Type: COMMENT; Schema: shop; Owner: postgres
COMMENT ON TABLE shop.c IS 'it''s; x';
-- Name: c_id_seq; Type: SEQUENCE; Schema: shop; Owner: postgres
ALTER TABLE shop.c ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME shop.c_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: inh; Type: TABLE; Schema: shop; Owner: postgres
CREATE TABLE shop.inh (
    extra text
)
INHERITS (shop.c);
ALTER TABLE shop.inh OWNER TO postgres;
-- Name: mv; Type: MATERIALIZED VIEW; Schema: shop; Owner: postgres
CREATE MATERIALIZED VIEW shop.mv AS
 SELECT c.name,
    count(*) AS n
   FROM shop.c
  GROUP BY c.name
  WITH NO DATA;
ALTER TABLE shop.mv OWNER TO postgres;
-- Name: o; Type: TABLE; Schema: shop; Owner: postgres
CREATE TABLE shop.o (
    id integer NOT NULL,
    c bigint,
    at timestamp with time zone DEFAULT now(),
    amount numeric(10,2),
    g numeric GENERATED ALWAYS AS ((amount * (2)::numeric)) STORED,
    CONSTRAINT o_amount_check CHECK ((amount > (0)::numeric))
);
ALTER TABLE shop.o OWNER TO postgres;
-- Name: o_id_seq; Type: SEQUENCE; Schema: shop; Owner: postgres
CREATE SEQUENCE shop.o_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER TABLE shop.o_id_seq OWNER TO postgres;
-- Name: o_id_seq; Type: SEQUENCE OWNED BY; Schema: shop; Owner: postgres
ALTER SEQUENCE shop.o_id_seq OWNED BY shop.o.id;
-- Name: part; Type: TABLE; Schema: shop; Owner: postgres
CREATE TABLE shop.part (
    id integer NOT NULL,
    d date NOT NULL,
    v integer
)
PARTITION BY RANGE (d);
ALTER TABLE shop.part OWNER TO postgres;
-- Name: part_1; Type: TABLE; Schema: shop; Owner: postgres
CREATE TABLE shop.part_1 (
    id integer NOT NULL,
    d date NOT NULL,
    v integer
);
ALTER TABLE shop.part_1 OWNER TO postgres;
-- Name: v; Type: VIEW; Schema: shop; Owner: postgres
CREATE VIEW shop.v AS
 SELECT c.id,
    count(*) AS n
   FROM (shop.c
     JOIN shop.o ON ((o.c = c.id)))
  GROUP BY c.id;
ALTER TABLE shop.v OWNER TO postgres;
-- Name: part_1; Type: TABLE ATTACH; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.part ATTACH PARTITION shop.part_1 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
-- Name: inh name; Type: DEFAULT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.inh ALTER COLUMN name SET DEFAULT 'x'::text;
-- Name: o id; Type: DEFAULT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.o ALTER COLUMN id SET DEFAULT nextval('shop.o_id_seq'::regclass);
-- Name: c c_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.c
    ADD CONSTRAINT c_pkey PRIMARY KEY (id);
-- Name: o o_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.o
    ADD CONSTRAINT o_pkey PRIMARY KEY (id);
-- Name: part part_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.part
    ADD CONSTRAINT part_pkey PRIMARY KEY (id, d);
-- Name: part_1 part_1_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.part_1
    ADD CONSTRAINT part_1_pkey PRIMARY KEY (id, d);
-- Name: c_name_idx; Type: INDEX; Schema: shop; Owner: postgres
CREATE INDEX c_name_idx ON shop.c USING gin (name public.gin_trgm_ops);
-- Name: o_at_id_idx; Type: INDEX; Schema: shop; Owner: postgres
CREATE UNIQUE INDEX o_at_id_idx ON shop.o USING btree (at, id);
-- Name: o_c_amount_idx; Type: INDEX; Schema: shop; Owner: postgres
CREATE INDEX o_c_amount_idx ON shop.o USING btree (c) INCLUDE (amount);
-- Name: part_1_pkey; Type: INDEX ATTACH; Schema: shop; Owner: postgres
ALTER INDEX shop.part_pkey ATTACH PARTITION shop.part_1_pkey;
-- Name: st; Type: STATISTICS; Schema: shop; Owner: postgres
CREATE STATISTICS shop.st ON id, c FROM shop.o;
ALTER STATISTICS shop.st OWNER TO postgres;
-- Name: part_1 r; Type: RULE; Schema: shop; Owner: postgres
CREATE RULE r AS
    ON DELETE TO shop.part_1 DO INSTEAD NOTHING;
-- Name: o tr; Type: TRIGGER; Schema: shop; Owner: postgres
CREATE TRIGGER tr BEFORE INSERT ON shop.o FOR EACH ROW EXECUTE FUNCTION shop.t();
-- Name: o o_c_fkey; Type: FK CONSTRAINT; Schema: shop; Owner: postgres
ALTER TABLE ONLY shop.o
    ADD CONSTRAINT o_c_fkey FOREIGN KEY (c) REFERENCES shop.c(id) ON DELETE CASCADE;
-- Name: o; Type: ROW SECURITY; Schema: shop; Owner: postgres
ALTER TABLE shop.o ENABLE ROW LEVEL SECURITY;
-- Name: o p; Type: POLICY; Schema: shop; Owner: postgres
CREATE POLICY p ON shop.o USING (true);
-- Name: pub; Type: PUBLICATION; Schema: -; Owner: postgres
CREATE PUBLICATION pub WITH (publish = 'insert, update, delete, truncate');
ALTER PUBLICATION pub OWNER TO postgres;
-- Name: pub o; Type: PUBLICATION TABLE; Schema: shop; Owner: postgres
ALTER PUBLICATION pub ADD TABLE ONLY shop.o;
-- Name: TABLE o; Type: ACL; Schema: shop; Owner: postgres
GRANT SELECT ON TABLE shop.o TO PUBLIC;
-- PostgreSQL database dump complete
\unrestrict zzk51EqbSFi9uz6dJcvsNT61ARQHlEySl0p5SyS7NbdkKLO25E1aO2JCqsXp27W
