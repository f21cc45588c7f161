-- The history. Tables are partitioned and expire by the collectors' clock (observed),
-- because devices' clocks may stand in 1970. Where a row stood in the inventory
-- is written as it was then. bus_partition and bus_offset say which message a
-- row came from: readers of the bus resume after the highest one.
-- Statements end with a semicolon at the end of a line and may be run twice.

CREATE TABLE IF NOT EXISTS gpu {{.OnCluster}} (
  time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
  observed DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
  resource LowCardinality(String),
  server LowCardinality(String),
  rack LowCardinality(String),
  site LowCardinality(String),
  model LowCardinality(String),
  collector LowCardinality(String),
  gpu UInt32 CODEC(ZSTD(1)),
  uuid LowCardinality(String),
  sm_clock_mhz Float32 CODEC(Gorilla, ZSTD(1)),
  mem_clock_mhz Float32 CODEC(Gorilla, ZSTD(1)),
  memory_temp_celsius Float32 CODEC(Gorilla, ZSTD(1)),
  gpu_temp_celsius Float32 CODEC(Gorilla, ZSTD(1)),
  power_usage_watts Float32 CODEC(Gorilla, ZSTD(1)),
  total_energy_millijoules Float64 CODEC(Gorilla, ZSTD(1)),
  pcie_replay_total Float64 CODEC(Gorilla, ZSTD(1)),
  gpu_util_percent Float32 CODEC(Gorilla, ZSTD(1)),
  mem_copy_util_percent Float32 CODEC(Gorilla, ZSTD(1)),
  enc_util_percent Float32 CODEC(Gorilla, ZSTD(1)),
  dec_util_percent Float32 CODEC(Gorilla, ZSTD(1)),
  xid_last Float32 CODEC(Gorilla, ZSTD(1)),
  fb_free_mib Float32 CODEC(Gorilla, ZSTD(1)),
  fb_used_mib Float32 CODEC(Gorilla, ZSTD(1)),
  fb_reserved_mib Float32 CODEC(Gorilla, ZSTD(1)),
  ecc_sbe_volatile_total Float64 CODEC(Gorilla, ZSTD(1)),
  ecc_dbe_volatile_total Float64 CODEC(Gorilla, ZSTD(1)),
  ecc_sbe_aggregate_total Float64 CODEC(Gorilla, ZSTD(1)),
  ecc_dbe_aggregate_total Float64 CODEC(Gorilla, ZSTD(1)),
  correctable_remapped_rows Float64 CODEC(Gorilla, ZSTD(1)),
  uncorrectable_remapped_rows Float64 CODEC(Gorilla, ZSTD(1)),
  row_remap_failure Float32 CODEC(Gorilla, ZSTD(1)),
  nvlink_bandwidth_total Float64 CODEC(Gorilla, ZSTD(1)),
  nvlink_crc_flit_errors_total Float64 CODEC(Gorilla, ZSTD(1)),
  nvlink_replay_errors_total Float64 CODEC(Gorilla, ZSTD(1)),
  clocks_event_reasons Float64 CODEC(Gorilla, ZSTD(1)),
  thermal_violation_microseconds Float64 CODEC(Gorilla, ZSTD(1)),
  power_violation_microseconds Float64 CODEC(Gorilla, ZSTD(1)),
  gr_engine_active_ratio Float32 CODEC(Gorilla, ZSTD(1)),
  sm_active_ratio Float32 CODEC(Gorilla, ZSTD(1)),
  dram_active_ratio Float32 CODEC(Gorilla, ZSTD(1)),
  pipe_tensor_active_ratio Float32 CODEC(Gorilla, ZSTD(1)),
  pcie_tx_bytes_total Float64 CODEC(Gorilla, ZSTD(1)),
  pcie_rx_bytes_total Float64 CODEC(Gorilla, ZSTD(1)),
  bus_partition UInt32 CODEC(ZSTD(1)),
  bus_offset Int64 CODEC(Delta, ZSTD(1))
) ENGINE = {{.MergeTree "gpu"}}
PARTITION BY toYYYYMMDD(observed)
ORDER BY (resource, time)
TTL toDateTime(observed) + INTERVAL {{.Days}} DAY
SETTINGS {{.Settings}};

CREATE TABLE IF NOT EXISTS samples {{.OnCluster}} (
  metric LowCardinality(String),
  time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
  observed DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
  resource LowCardinality(String),
  server LowCardinality(String),
  rack LowCardinality(String),
  site LowCardinality(String),
  model LowCardinality(String),
  collector LowCardinality(String),
  part_kind LowCardinality(String),
  part LowCardinality(String),
  labels LowCardinality(String), -- further labels as a JSON object, or empty
  value Float64 CODEC(Gorilla, ZSTD(1)),
  bus_partition UInt32 CODEC(ZSTD(1)),
  bus_offset Int64 CODEC(Delta, ZSTD(1))
) ENGINE = {{.MergeTree "samples"}}
PARTITION BY toYYYYMMDD(observed)
ORDER BY (metric, resource, time)
TTL toDateTime(observed) + INTERVAL {{.Days}} DAY
SETTINGS {{.Settings}};

CREATE TABLE IF NOT EXISTS events {{.OnCluster}} (
  id String,
  time DateTime64(9, 'UTC'),
  observed DateTime64(9, 'UTC'),
  source LowCardinality(String),
  type LowCardinality(String),
  code LowCardinality(String),
  severity LowCardinality(String),
  state LowCardinality(String),
  resource LowCardinality(String),
  server LowCardinality(String),
  rack LowCardinality(String),
  site LowCardinality(String),
  model LowCardinality(String),
  collector LowCardinality(String),
  kind LowCardinality(String),
  device LowCardinality(String),
  message String CODEC(ZSTD(1)),
  attrs Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  bus_partition UInt32 CODEC(ZSTD(1)),
  bus_offset Int64 CODEC(Delta, ZSTD(1)),
  INDEX by_id id TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX by_resource resource TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = {{.MergeTree "events"}}
PARTITION BY toYYYYMMDD(observed)
ORDER BY (time, id)
TTL toDateTime(observed) + INTERVAL {{.EventDays}} DAY
SETTINGS {{.Settings}};

-- Each state that an incident had is a row; doc is the whole record.
CREATE TABLE IF NOT EXISTS incidents {{.OnCluster}} (
  id String,
  at DateTime64(9, 'UTC'),
  opened DateTime64(9, 'UTC'),
  updated DateTime64(9, 'UTC'),
  closed Nullable(DateTime64(9, 'UTC')),
  observed DateTime64(3, 'UTC'),
  site LowCardinality(String),
  severity LowCardinality(String),
  resource String,
  fault LowCardinality(String),
  confidence Float64,
  events UInt32,
  affected Array(String),
  workloads Array(String),
  merged_into String,
  revision UInt32,
  explanation String CODEC(ZSTD(1)),
  doc String CODEC(ZSTD(1)),
  bus_partition UInt32,
  bus_offset Int64
) ENGINE = {{.MergeTree "incidents"}}
PARTITION BY toYYYYMM(observed)
ORDER BY (id, updated)
TTL toDateTime(observed) + INTERVAL {{.EventDays}} DAY
SETTINGS {{.Settings}};

CREATE TABLE IF NOT EXISTS predictions {{.OnCluster}} (
  id String,
  time DateTime64(9, 'UTC'),
  observed DateTime64(3, 'UTC'),
  site LowCardinality(String),
  resource String,
  server LowCardinality(String),
  metric LowCardinality(String),
  failure LowCardinality(String),
  probability Float64,
  horizon_seconds Float64,
  eta_p10 Nullable(DateTime64(3, 'UTC')),
  eta_p50 Nullable(DateTime64(3, 'UTC')),
  eta_p90 Nullable(DateTime64(3, 'UTC')),
  "limit" Float64,
  value Float64,
  slope_per_hour Float64,
  state LowCardinality(String),
  model LowCardinality(String),
  doc String CODEC(ZSTD(1)),
  bus_partition UInt32,
  bus_offset Int64
) ENGINE = {{.MergeTree "predictions"}}
PARTITION BY toYYYYMM(observed)
ORDER BY (id, time)
TTL toDateTime(observed) + INTERVAL {{.EventDays}} DAY
SETTINGS {{.Settings}};

-- Each state that an action had is a row.
CREATE TABLE IF NOT EXISTS actions {{.OnCluster}} (
  id String,
  time DateTime64(9, 'UTC'),
  observed DateTime64(3, 'UTC'),
  site LowCardinality(String),
  server LowCardinality(String),
  kind LowCardinality(String),
  reason String,
  incident String,
  mode LowCardinality(String),
  rung Int32,
  attempt Int32,
  state LowCardinality(String),
  actor LowCardinality(String),
  doc String CODEC(ZSTD(1)),
  bus_partition UInt32,
  bus_offset Int64
) ENGINE = {{.MergeTree "actions"}}
PARTITION BY toYYYYMM(observed)
ORDER BY (id, time)
TTL toDateTime(observed) + INTERVAL {{.EventDays}} DAY
SETTINGS {{.Settings}};

-- How far each reader of the bus has surely come: a lower bound that saves
-- reading messages again that left no row. The tables themselves say the rest.
CREATE TABLE IF NOT EXISTS bus_positions {{.OnCluster}} (
  reader LowCardinality(String),
  topic LowCardinality(String),
  bus_partition UInt32,
  next_offset Int64,
  written DateTime64(3, 'UTC')
) ENGINE = {{.ReplacingMergeTree "bus_positions" "next_offset"}}
ORDER BY (reader, topic, bus_partition)
SETTINGS {{.Settings}};
