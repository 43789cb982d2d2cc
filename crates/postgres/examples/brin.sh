#!/usr/bin/env bash
# The index of a table by time as a B-tree, as it is, and as BRIN: room, ingest and questions.
# examples/brin.sh HOST USER [INGEST]: a server of which databases may be made; INGEST is the built example `ingest`.
set -euo pipefail
host=$1 user=$2 ingest=${3:-target/release/examples/ingest}
sql() { PGOPTIONS='-c client_min_messages=warning' psql -qAt -v ON_ERROR_STOP=1 -h "$host" -U "$user" "$@"; }
start=1795132800000000000
middle=$((start + 900 * 1000000000))
page="SELECT e.*, s.name FROM gpu_events e JOIN gpuvitals_subjects s ON s.id = e.subject_id"
questions=(
  "SELECT subject_id, avg(power_w) FROM gpu_events WHERE timestamp_ns BETWEEN $middle AND $middle + 60000000000 GROUP BY 1"
  "SELECT * FROM gpu_events WHERE timestamp_ns BETWEEN $middle AND $middle"
  "$page ORDER BY e.timestamp_ns DESC, s.name COLLATE \"C\" LIMIT 100"
  "$page WHERE e.timestamp_ns <= $middle ORDER BY e.timestamp_ns DESC, s.name COLLATE \"C\" LIMIT 100"
)
for kind in btree brin; do
  sql postgres -c "DROP DATABASE IF EXISTS gpuvitals_brin" -c "CREATE DATABASE gpuvitals_brin"
  # Makes the tables.
  "$ingest" "$host" gpuvitals_brin "$user" 1 10 >/dev/null
  sql gpuvitals_brin -c "TRUNCATE gpu_events" -c "DROP INDEX gpu_events_timestamp_ns_idx" \
    -c "CREATE INDEX gpu_events_timestamp_ns_idx ON gpu_events USING $kind (timestamp_ns)" -c CHECKPOINT
  echo "$kind"
  "$ingest" "$host" gpuvitals_brin "$user" 1000 1800
  sql gpuvitals_brin -c "VACUUM ANALYZE gpu_events"
  sql gpuvitals_brin -F ': ' -c "SELECT relname, pg_size_pretty(pg_relation_size(oid)) FROM pg_class
    WHERE relname ~ '^gpu_events_20261120' ORDER BY 1"
  for question in "${questions[@]}"; do
    for _ in 1 2 3 4 5; do
      sql gpuvitals_brin -c "EXPLAIN (ANALYZE, TIMING OFF) $question" | sed -n 's/Execution Time: //p'
    done | sort -n | sed -n "3s|\$|: ${question//|/\\|}|p"
  done
done
sql postgres -c "DROP DATABASE gpuvitals_brin"
