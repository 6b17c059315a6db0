"""Django's migrations, one at a time and all at once, under stream tables. Run by `./x integrations`.

Arguments: the program trickle, and the directory of a server's programs.
"""

import io
import os
import sys

import django
from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor

from shared import ON, ONCE, OUT, Database, Migration, queries, walk

key = models.AutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
FIRST = [
    migrations.CreateModel("Customer", [("id", key), ("name", models.CharField(max_length=40)),
                                        ("email", models.TextField(null=True))]),
    migrations.CreateModel("Order", [("id", key), ("customer", models.ForeignKey("shop.Customer", models.CASCADE)),
                                     ("amount", models.IntegerField()), ("state", models.CharField(max_length=10, null=True)),
                                     ("memo", models.TextField(null=True))]),
]


def write_all(apps, schema_editor):
    apps.get_model("shop", "Order").objects.filter(state=None).update(state="new")
    apps.get_model("shop", "Order").objects.update(cents=models.F("cents") * 100)


def write_all_back(apps, schema_editor):
    apps.get_model("shop", "Order").objects.update(cents=models.F("cents") / 100)


def step(title, operation, there, back=None):
    """An operation of Django's, which knows its way back."""
    return Migration(title, operation, None, there, back)


BY_CENTS = models.Index(fields=["cents"], name="order_cents")
LINE = [("id", models.IntegerField(primary_key=True)), ("name", models.CharField(max_length=40)),
        ("amount", models.BigIntegerField())]
UNMANAGED = {"managed": False, "db_table": "order_lines"}
MIGRATIONS = [
    step("add a column", migrations.AddField("order", "comment", models.TextField(null=True)), [ON, ON, ON]),
    step("add a column with a default", migrations.AddField("order", "priority", models.IntegerField(default=7)), [ON, ON, ON]),
    step("drop a column that nobody reads", migrations.RemoveField("order", "memo"), [ON, ON, ON]),
    step("rename a column that is read", migrations.RenameField("order", "amount", "cents"), [ONCE, ONCE, ON]),
    step("rename a table", migrations.RenameModel("Customer", "Client"), [ON, ON, ON]),
    step("CREATE INDEX CONCURRENTLY", AddIndexConcurrently("order", BY_CENTS), [ON, ON, ON]),
    step("give a column another type", migrations.AlterField("order", "cents", models.BigIntegerField()), [ONCE, ONCE, ON]),
    step("write all rows", migrations.RunPython(write_all, write_all_back), [ON, ON, ON]),
    step("forbid NULL", migrations.AlterField("order", "state", models.CharField(max_length=10, default="new")),
         [ON, ON, ON], [ON, ON, ON]),
    step("add a unique constraint",
         migrations.AddConstraint("client", models.UniqueConstraint(fields=["email"], name="client_email")), [ON, ON, ON]),
    step("a model of a stream table", migrations.CreateModel("OrderLine", LINE, UNMANAGED), [ON, ON, ON]),
    step("drop a column that is read", migrations.RemoveField("order", "state"), [OUT, ONCE, ON], [ON, ON, ON]),
]


def set_up(db):
    """Django over the database, with a file for each migration."""
    shop = {"ENGINE": "django.db.backends.postgresql", "HOST": db.dir, "NAME": "shop", "USER": "app"}
    settings.configure(
        INSTALLED_APPS=["django.contrib.postgres", "shop"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        MIGRATION_MODULES={"shop": "shop_migrations"},
        DATABASES={"default": {**shop, "OPTIONS": {"options": "-c search_path=public,trickle"}}, "public": shop},
    )
    os.makedirs(f"{db.dir}/shop_migrations")
    open(f"{db.dir}/shop_migrations/__init__.py", "w").close()
    for n, operations in enumerate(["FIRST", *(f"[with_django.MIGRATIONS[{i}].up]" for i in range(len(MIGRATIONS)))], 1):
        # CREATE INDEX CONCURRENTLY runs in no transaction.
        atomic = n == 1 or not isinstance(MIGRATIONS[n - 2].up, AddIndexConcurrently)
        with open(f"{db.dir}/shop_migrations/{n:04}.py", "w") as f:
            f.write("import with_django\nfrom django.db import migrations\nclass Migration(migrations.Migration):\n")
            f.write(f"    dependencies = {[('shop', f'{n - 1:04}')] if n > 1 else []}\n    atomic = {atomic}\n")
            f.write(f"    operations = {operations.replace('FIRST', 'with_django.FIRST')}\n")
    sys.path.insert(0, db.dir)
    django.setup()


def migrate(n):
    call_command("migrate", "shop", f"{n:04}", verbosity=0)


def write(n):
    """By the models as they are after the n-th migration, as Django itself makes them for RunPython."""
    apps = MigrationExecutor(connection).loader.project_state(("shop", f"{n:04}")).apps
    named = {m.__name__: m for m in apps.get_models()}
    order, customer = named["Order"], named.get("Customer") or named["Client"]
    columns = {f.name for f in order._meta.get_fields()}
    amount = "amount" if "amount" in columns else "cents"
    state = {"state": f"state {n % 3}"} if "state" in columns else {}
    made = customer.objects.create(name=f"customer {n}")
    order.objects.bulk_create(order(customer=made, **{amount: n * i}, **state) for i in range(1, 4))
    changed, gone = order.objects.order_by("id")[:2]
    setattr(changed, amount, getattr(changed, amount) + 1)
    changed.save()
    gone.delete()
    customer.objects.filter(id=made.id).update(name=f"customer {n}'")


def main(db):
    set_up(db)
    migrate(1)
    walk(db, MIGRATIONS, migrate, write, queries("shop_order", "shop_customer", "amount"),
         queries("shop_order", "shop_client", "cents", state=False))

    # The application reads a stream table as any other; makemigrations has nothing to do; inspectdb shows what the
    # search path has.
    from shop.models import Order, OrderLine
    joined = Order.objects.order_by("id").values_list("id", "customer__name", "cents")
    assert list(OrderLine.objects.order_by("id").values_list("id", "name", "amount")) == list(joined)
    call_command("makemigrations", check_changes=True)
    for database, shows in [("default", True), ("public", False)]:
        said = io.StringIO()
        call_command("inspectdb", database=database, stdout=said)
        assert ("class OrderLines(" in said.getvalue()) == shows and "Pgt" not in said.getvalue(), said.getvalue()
    print("  makemigrations has nothing to do, and inspectdb shows stream tables where the search path has their schema")


if __name__ == "__main__":
    with Database() as db:
        main(db)
