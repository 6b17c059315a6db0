--
-- PostgreSQL database dump
--

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

--
-- Name: shop; Type: SCHEMA; Schema: -; Owner: postgres
--

CREATE SCHEMA shop;

ALTER SCHEMA shop OWNER TO postgres;

--
-- Name: citext; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS citext WITH SCHEMA public;

--
-- Name: EXTENSION citext; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION citext IS 'data type for case-insensitive character strings';

--
-- Name: hstore; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS hstore WITH SCHEMA public;

--
-- Name: EXTENSION hstore; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION hstore IS 'data type for storing sets of (key, value) pairs';

--
-- Name: ltree; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS ltree WITH SCHEMA public;

--
-- Name: EXTENSION ltree; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION ltree IS 'data type for hierarchical tree-like structures';

--
-- Name: pg_trgm; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;

--
-- Name: EXTENSION pg_trgm; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION pg_trgm IS 'text similarity measurement and index searching based on trigrams';

--
-- Name: uuid-ossp; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS "uuid-ossp" WITH SCHEMA public;

--
-- Name: EXTENSION "uuid-ossp"; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION "uuid-ossp" IS 'generate universally unique identifiers (UUIDs)';

--
-- Name: mail; Type: DOMAIN; Schema: shop; Owner: postgres
--

CREATE DOMAIN shop.mail AS public.citext
	CONSTRAINT mail_check CHECK ((VALUE OPERATOR(public.~) '@'::public.citext));

ALTER DOMAIN shop.mail OWNER TO postgres;

--
-- Name: norm(public.citext); Type: FUNCTION; Schema: shop; Owner: postgres
--

CREATE FUNCTION shop.norm(public.citext) RETURNS public.citext
    LANGUAGE sql IMMUTABLE STRICT
    AS $_$ select $1 $_$;

ALTER FUNCTION shop.norm(public.citext) OWNER TO postgres;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: o; Type: TABLE; Schema: shop; Owner: postgres
--

CREATE TABLE shop.o (
    id integer NOT NULL,
    who public.citext,
    n integer
);

ALTER TABLE shop.o OWNER TO postgres;

--
-- Name: u; Type: TABLE; Schema: shop; Owner: postgres
--

CREATE TABLE shop.u (
    id uuid DEFAULT public.uuid_generate_v4() NOT NULL,
    email public.citext NOT NULL,
    second shop.mail,
    tags public.hstore,
    path public.ltree,
    body text,
    name text,
    words tsvector GENERATED ALWAYS AS (to_tsvector('english'::regconfig, body)) STORED,
    CONSTRAINT u_email_check CHECK ((email OPERATOR(public.<>) ''::public.citext))
);

ALTER TABLE shop.u OWNER TO postgres;

--
-- Name: v; Type: VIEW; Schema: shop; Owner: postgres
--

CREATE VIEW shop.v AS
 SELECT u.email,
    (u.tags OPERATOR(public.->) 'a'::text) AS a
   FROM shop.u
  WHERE ((u.name OPERATOR(public.%) 'x'::text) OR (u.email OPERATOR(public.=) 'y'::public.citext));

ALTER TABLE shop.v OWNER TO postgres;

--
-- Name: o o_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.o
    ADD CONSTRAINT o_pkey PRIMARY KEY (id);

--
-- Name: u u_email_key; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.u
    ADD CONSTRAINT u_email_key UNIQUE (email);

--
-- Name: u u_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.u
    ADD CONSTRAINT u_pkey PRIMARY KEY (id);

--
-- Name: u_name_idx; Type: INDEX; Schema: shop; Owner: postgres
--

CREATE INDEX u_name_idx ON shop.u USING gin (name public.gin_trgm_ops);

--
-- Name: u_tags_idx; Type: INDEX; Schema: shop; Owner: postgres
--

CREATE INDEX u_tags_idx ON shop.u USING gin (tags);

--
-- Name: o o_who_fkey; Type: FK CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.o
    ADD CONSTRAINT o_who_fkey FOREIGN KEY (who) REFERENCES shop.u(email);

--
-- PostgreSQL database dump complete
--

