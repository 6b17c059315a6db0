-- The catalog of version 3.

SELECT pgtrickle.install();
