-- name: delete_lineage
-- Each half asks an index of its own, which both together with `or` would not.
delete from lineage where (child, parent) in (
  select child, parent from lineage where child in (select atom from json_each(:ids))
  union select child, parent from lineage where parent in (select atom from json_each(:ids))
);
