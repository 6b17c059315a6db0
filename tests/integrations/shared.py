"""A throw-away server, stream tables over the tables of a migration tool, and a look after each migration.

The bug that only these tests catch: a tool that people deploy with does something in its migrations, in its own
order and its own transactions, after which a writer fails, a stream table is wrong or stands still, or the tool
stumbles over what trickle made.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, namedtuple

import psycopg

ON, ONCE, OUT = "goes on", "computed once", "suspended"
STREAM_TABLES = ["by_state", "order_lines", "per_customer"]

# `up` and `down` are the tool's own; `there` and `back` say how STREAM_TABLES fare, as docs/migrations.md promises.
Migration = namedtuple("Migration", "title up down there back", defaults=[None])


def queries(orders, customers, amount, state=True):
    """Those of STREAM_TABLES, the last of which is IMMEDIATE, over tables and columns of these names."""
    total = f"SELECT count(*) AS orders, sum({amount}) AS total"
    return [
        f"{total}, state FROM {orders} GROUP BY state" if state else f"{total} FROM {orders}",
        f"SELECT o.id, c.name, o.{amount} AS amount FROM {orders} o JOIN {customers} c ON c.id = o.customer_id",
        f"SELECT customer_id, count(*) AS orders FROM {orders} GROUP BY customer_id",
    ]


class Database:
    """As in README.md: the role `app` owns the application's tables; trickle is a member of it, with its own schema."""

    def __init__(self):
        self.program, self.programs = sys.argv[1:]
        self.dir, self.seen = tempfile.mkdtemp(prefix="trickle-", dir="/tmp"), 0
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        self.env["DATABASE_URL"] = f"host={self.dir} dbname=shop user=trickle"

    def __enter__(self):
        try:
            self.server("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N", "-D", f"{self.dir}/data")
            options = f"-c listen_addresses='' -c fsync=off -k {self.dir}"
            self.server("pg_ctl", "-D", f"{self.dir}/data", "-l", f"{self.dir}/log", "-w", "-o", options, "start")
            roles = ["CREATE ROLE app LOGIN", "CREATE ROLE trickle LOGIN IN ROLE app"]
            self.sql(*roles, "CREATE DATABASE shop OWNER app", database="postgres")
            self.sql("GRANT CREATE ON DATABASE shop TO trickle", "CREATE SCHEMA trickle AUTHORIZATION trickle",
                     "GRANT USAGE ON SCHEMA trickle TO app",
                     "ALTER DEFAULT PRIVILEGES FOR ROLE trickle IN SCHEMA trickle GRANT SELECT ON TABLES TO app")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server("pg_ctl", "-D", f"{self.dir}/data", "-m", "immediate", "-w", "stop", check=False)
        shutil.rmtree(self.dir)

    def server(self, name, *arguments, check=True):
        """Runs a program of the server, which refuses to be root's."""
        other = {}
        if os.getuid() == 0:
            user = next(u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody"))
            os.chown(self.dir, user.pw_uid, user.pw_gid)
            other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with open(f"{self.dir}/said", "w+") as said:
            command = [f"{self.programs}/{name}", *arguments]
            done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said, **other)
            said.seek(0)
            assert not check or done.returncode == 0, f"{name}: {said.read()}"

    def sql(self, *statements, role="postgres", database="shop"):
        """The rows of the last of these statements."""
        with psycopg.connect(host=self.dir, user=role, dbname=database, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def trickle(self, *arguments, code=0):
        """What the program prints on standard output, and with another exit code than 0 on standard error."""
        command = [self.program, *arguments]
        done = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == code, f"trickle {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    def status(self):
        return {t["name"].removeprefix("trickle."): t for t in json.loads(self.trickle("status", "--json"))}

    def effects(self, status):
        """What became of each of STREAM_TABLES since this was asked the last time."""
        found, seen = [], self.seen
        for name in STREAM_TABLES:
            new = [h for h in json.loads(self.trickle("history", name, "--json")) if h["refresh_id"] > seen]
            self.seen = max([self.seen, *(h["refresh_id"] for h in new)])
            once = any(h["action"] == "REINITIALIZE" for h in new)
            found.append(OUT if status[name]["status"] == "SUSPENDED" else ONCE if once else ON)
        return found

    def look(self, title, expected):
        """After a migration and writes: stream tables are equal to their queries, and fared as expected."""
        if OUT in expected:
            assert "cannot be kept any more" in self.trickle("refresh", "--all", code=1)
        self.trickle("refresh", "--all")
        status = self.status()
        found = self.effects(status)
        self.trickle("check", *(name for name, effect in zip(STREAM_TABLES, found) if effect != OUT))
        print(f"  {title}: " + ", ".join(f"{name} {effect}" for name, effect in zip(STREAM_TABLES, found)))
        for name, effect in zip(STREAM_TABLES, found):
            stored = self.sql(f"TABLE trickle.{name}", role="app")
            if effect == OUT:
                assert stored, f"{name} lost its rows"
                print(f"    {status[name]['last_error']}")
            else:
                fresh = self.sql(status[name]["query"], role="app")
                assert Counter(stored) == Counter(fresh), f"{title}: {name} is {stored} and not {fresh}"
        assert found == expected, f"{title}: expected {expected}"


def documented():
    """Holds docs/migrations.md to these files: its Python is a part of them."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/../../docs/migrations.md") as f:
        snippets = f.read().split("```python\n")[1:]
    names = ["alembic_environment/env.py", "with_alembic.py", "shop/models.py"]
    files = [open(f"{here}/{name}").read() for name in names]
    for snippet in (s.split("```")[0] for s in snippets):
        assert any(snippet in text for text in files), f"docs/migrations.md has Python of its own: {snippet}"
    assert len(snippets) > 2, snippets


def walk(db, migrations, migrate, write, first, last):
    """Each migration by itself, each way back by itself, then all as one deployment beside a refresher.

    `migrate(n)` has the tool bring the database to its n-th migration, of which the first made the tables, and
    `write(n)` writes as the application of that time does. `first` are the queries over the tables at the beginning,
    and `last` those over the tables at the end: by_state reads a column that the last migration drops.
    """
    documented()
    db.trickle("init")
    for name, query in zip(STREAM_TABLES, first):
        how = ["--mode", "immediate"] if name == "per_customer" else ["--schedule", "1s"]
        db.trickle("create", name, *how, "--query", query)
    db.effects(db.status())
    write(1)
    db.look("the first migration", [ON, ON, ON])
    for n, m in enumerate(migrations, 2):
        migrate(n)
        write(n)
        db.look(m.title, m.there)
    db.trickle("alter", "by_state", "--query", last[0])
    write(n)
    db.look("trickle alter by_state --query …, without the column", [ONCE, ON, ON])
    for n, m in reversed(list(enumerate(migrations, 1))):
        migrate(n)
        write(n)
        db.look(f"back: {m.title}", m.back or m.there)
    db.trickle("alter", "by_state", "--query", first[0])
    write(1)
    db.look("trickle alter by_state --query …, with the column", [ONCE, ON, ON])

    end = len(migrations) + 1
    refresher = subprocess.Popen([db.program, "run"], env=db.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        db.trickle("pause")
        migrate(end)
        write(end)
        # One that cannot be kept would have an error.
        still = [(t["name"], t["status"], t["last_error"]) for t in db.status().values()]
        assert all(status == "SUSPENDED" and not error for _, status, error in still), still
        db.trickle("alter", "by_state", "--query", last[0])
        db.trickle("resume")
        write(end)
        for name in STREAM_TABLES:
            db.trickle("wait", name, "--timeout", "30s")
    finally:
        refresher.terminate()
        refresher.wait()
    db.look("all at once, between trickle pause and trickle resume", [ONCE, ONCE, ON])
