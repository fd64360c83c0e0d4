-- name: read_answer
select n, digest, record from answer
where tenant = :tenant and caller = :caller and once = :once and at > :after
order by n;

-- name: insert_answer
-- An expired answer is replaced.
insert into answer (tenant, caller, once, n, digest, record, at)
values (:tenant, :caller, :once, :n, :digest, :record, :now)
on conflict (tenant, caller, once, n) do update set digest = :digest, record = :record, at = :now
where answer.at <= :before
returning n;

-- name: forget_answers
delete from answer where tenant = :tenant and at <= :before;
