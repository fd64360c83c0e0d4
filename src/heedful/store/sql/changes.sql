-- name: changes_with
-- The changes about which the same was said, oldest first.
select change, source, record from remark
where tenant = :tenant and project = :project and digest = :digest order by at, change;
