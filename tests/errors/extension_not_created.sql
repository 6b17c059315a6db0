CREATE TABLE u (id int PRIMARY KEY, email public.citext NOT NULL);
SELECT id FROM u WHERE email = 'a';
