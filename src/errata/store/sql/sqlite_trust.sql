-- name: insert_origin
insert or ignore into origin (example, source)
select e.id, :source from example e where e.reflection = :reflection and e.digest = :digest and :source <> ''
union
select e.id, o.source from example e, origin o, json_each(:parents) p
where e.reflection = :reflection and e.digest = :digest and o.example = p.value;

-- name: insert_lineage
insert or ignore into lineage (child, parent)
select e.id, p.value from example e, json_each(:parents) p
where e.reflection = :reflection and e.digest = :digest and p.value in (select id from example) and p.value <> e.id;

-- name: insert_ruling
insert into ruling (tenant, project, action, subject, by, why, record, at)
values (:tenant, :project, :action, :subject, :by, :why, :record, :now);
