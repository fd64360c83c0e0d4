-- name: delete_lineage
delete from lineage
where child in (select atom from json_each(:ids))
   or parent in (select atom from json_each(:ids));
