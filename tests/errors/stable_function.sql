SELECT id FROM orders WHERE placed > now() - interval '1 day';
