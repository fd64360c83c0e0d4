-- name: changes_with
-- The changes about which the same was said, oldest first.
select change, source, record from remark
where tenant = :tenant and project = :project and digest = :digest order by at, change;

-- name: forget_remarks
-- Delete the oldest remarks beyond so many.
delete from remark where tenant = :tenant and project = :project and at < (
  select at from remark where tenant = :tenant and project = :project order by at desc limit 1 offset :most
);
