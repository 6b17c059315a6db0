"""The models as the last migration leaves them."""

from django.db import models


class Client(models.Model):
    name = models.CharField(max_length=40)
    email = models.TextField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["email"], name="client_email")]


class Order(models.Model):
    customer = models.ForeignKey(Client, models.CASCADE)
    cents = models.BigIntegerField()
    comment = models.TextField(null=True)
    priority = models.IntegerField(default=7)

    class Meta:
        indexes = [models.Index(fields=["cents"], name="order_cents")]


class OrderLine(models.Model):
    id = models.IntegerField(primary_key=True)
    name = models.CharField(max_length=40)
    amount = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "order_lines"
