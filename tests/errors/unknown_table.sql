SELECT *
FROM ordrs o;
