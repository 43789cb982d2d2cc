"""The reference rows: store_rows.py GPUS SECONDS DIRECTORY writes rows.csv, which gpuvitals replays, and rows.arrow for others.

A fleet of H100s at 1 Hz with 20 metrics. Each GPU stays in a state like those of a real DCGM capture of 247 GPUs, whose deciles
stand below: 52 % compute nothing, some of these with a loaded model. The capture has one moment; how values move in time is
made up. The noise of power and of the two PCIe rates takes 1.7 bytes a value. The same seed gives the same rows.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

START_MS = 1_795_168_800_000  # 2026-11-20 10:00:00 UTC, the beginning of an hour
SEED = 1
CHUNK = 100
METRICS = {
    "utilization_pct": pa.float32(),
    "memory_utilization_pct": pa.float32(),
    "encoder_utilization_pct": pa.float32(),
    "decoder_utilization_pct": pa.float32(),
    "power_w": pa.float32(),
    "power_limit_w": pa.float32(),
    "energy_mj": pa.int64(),
    "temperature_c": pa.float32(),
    "temperature_memory_c": pa.float32(),
    "sm_clock_mhz": pa.int32(),
    "mem_clock_mhz": pa.int32(),
    "memory_used_mb": pa.int64(),
    "memory_free_mb": pa.int64(),
    "pcie_tx_bytes_per_s": pa.int64(),
    "pcie_rx_bytes_per_s": pa.int64(),
    "pcie_replays": pa.int64(),
    "throttle_reasons": pa.int64(),
    "xid_last": pa.int32(),
    "ecc_corrected_volatile": pa.int64(),
    "ecc_uncorrected_volatile": pa.int64(),
}
SCHEMA = pa.schema([("gpu", pa.int32()), ("ts", pa.int64()), *METRICS.items()])

# Least, deciles and most of the capture: GPUs without work, and GPUs with it.
IDLE_POWER = (66.781, 69.037, 69.838, 70.439, 71.058, 71.669, 72.796, 73.98, 76.917, 78.2, 81.4)
WAITING_POWER = (108.4, 111.0, 112.0, 113.0, 114.2, 115.0, 116.3, 118.0, 121.0, 130.0, 156.596)
BUSY_POWER = (108.417, 276.723, 349.513, 448.5, 481.716, 494.377, 506.238, 516.564, 538.833, 628.961, 689.457)
BUSY_USED = (2204, 24875, 34481, 36955, 37265, 48753, 48843, 56145, 60873, 75467, 77413)
BUSY_UTILIZATION = (33, 67, 89, 91, 92, 98, 98, 99, 100, 100, 100)
BUSY_MEMORY_UTILIZATION = (0, 17, 25, 34, 38, 42, 44, 50, 61, 73, 80)
IDLE_TEMPERATURE = (26, 27, 27, 28, 29, 30, 30, 31, 33, 40, 43)
BUSY_TEMPERATURE = (29, 41, 46, 48, 50, 52, 54, 57, 61, 63, 80)


def identities(gpus):
    """Of each GPU: UUID, node, model, index on its node."""
    return [
        (f"GPU-{gpu:08x}-86f3-7a43-b711-4771313afc50", f"node-{gpu // 8:04}", "NVIDIA H100 80GB HBM3", gpu % 8)
        for gpu in range(gpus)
    ]


def between(deciles, place):
    return np.interp(place, np.linspace(0, 1, 11), deciles)


class Fleet:
    """Rows of all GPUs, a chunk of seconds at a time."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.random = random = np.random.default_rng(SEED)
        kind = random.permutation((np.arange(gpus) + 0.5) / gpus)
        self.idle, self.busy = kind < 0.425, kind >= 0.52
        heat, load, memory, transfer, self.phase = random.random((5, gpus))
        self.power = np.select(
            [self.idle, self.busy], [between(IDLE_POWER, heat), between(BUSY_POWER, heat)], between(WAITING_POWER, heat)
        )
        self.temperature = np.where(self.idle, between(IDLE_TEMPERATURE, heat), between(BUSY_TEMPERATURE, heat))
        self.utilization = np.where(self.busy, between(BUSY_UTILIZATION, load), 0)
        self.memory_utilization = np.where(self.busy, between(BUSY_MEMORY_UTILIZATION, load), 0)
        self.used = np.where(self.idle, 4, between(BUSY_USED, memory)).astype(np.int64)
        self.grows = self.busy & (memory < 0.2)
        self.rate = np.where(self.idle, 60e3 + 40e3 * transfer, 5e6 * 140**transfer)
        # Milliseconds within the second at which the node reads its GPUs: microseconds, since reading jitters.
        self.offset_us = random.integers(0, 990_000, gpus // 8 + 1)[np.arange(gpus) // 8]
        self.energy_mj = random.integers(10**11, 10**13, gpus)
        self.last_mw = np.rint(self.power * 1e3).astype(np.int64)
        self.corrected, self.replays = np.zeros(gpus, np.int64), random.poisson(0.2, gpus)
        self.xid = np.where(random.random(gpus) < 0.01, 31, 0)

    def chunk(self, first, seconds):
        random, shape = self.random, (seconds, self.gpus)
        at = np.arange(first, first + seconds)[:, None]
        normal = lambda scale: random.normal(size=shape) * scale
        jitter_us = np.repeat(random.normal(size=(seconds, self.gpus // 8 + 1)) * 150, 8, axis=1)[:, : self.gpus]
        slow = np.sin(2 * np.pi * (at / (300 + 600 * self.phase) + self.phase))
        milliwatts = np.rint((self.power + 1e-2 * self.power * slow + normal(np.where(self.busy, 6, 0.12))) * 1e3).astype(
            np.int64
        )
        before = np.vstack([self.last_mw[None], milliwatts[:-1]])
        energy_mj = self.energy_mj + np.cumsum((before + milliwatts) // 2, axis=0)
        self.last_mw, self.energy_mj = milliwatts[-1], energy_mj[-1]
        percent = lambda level, scale: np.where(self.busy, np.clip(np.rint(level + normal(scale)), 0, 100), 0)
        temperature = np.rint(self.temperature + 1.2 * slow + normal(0.03))
        capped = self.busy & (self.power > 620) & (slow > 0)
        used = self.used + np.where(self.grows, at // 60, 0)
        rate = lambda share: np.rint(self.rate * share + normal(np.where(self.idle, 120, 7_000))).clip(0)
        corrected = self.corrected + np.cumsum(random.random(shape) < 2e-6, axis=0)
        self.corrected = corrected[-1]
        same = lambda value: np.broadcast_to(value, shape)
        columns = {
            "gpu": same(np.arange(self.gpus)),
            "ts": START_MS + (at * 1_000_000 + self.offset_us + jitter_us.astype(np.int64)).clip(0) // 1000,
            "utilization_pct": percent(self.utilization, 0.7),
            "memory_utilization_pct": percent(self.memory_utilization, 2.2),
            "encoder_utilization_pct": same(0),
            "decoder_utilization_pct": same(0),
            "power_w": milliwatts / 1e3,
            "power_limit_w": same(700),
            "energy_mj": energy_mj,
            "temperature_c": temperature,
            "temperature_memory_c": temperature + np.where(self.idle, 5, 9),
            "sm_clock_mhz": np.where(self.idle, 345, np.where(capped, 1965, 1980)),
            "mem_clock_mhz": same(2619),
            "memory_used_mb": used,
            "memory_free_mb": 81_007 - used,
            "pcie_tx_bytes_per_s": rate(0.6),
            "pcie_rx_bytes_per_s": rate(1.0),
            "pcie_replays": same(self.replays),
            "throttle_reasons": np.where(self.idle, 1, np.where(capped, 4, 0)),
            "xid_last": same(self.xid),
            "ecc_corrected_volatile": corrected,
            "ecc_uncorrected_volatile": same(0),
        }
        arrays = [pa.array(columns[field.name].astype(field.type.to_pandas_dtype()).ravel()) for field in SCHEMA]
        return pa.record_batch(arrays, schema=SCHEMA)


def csv_form(batch, names):
    """The rows as gpuvitals reads them: with the GPU's identity, and the word that they are made up."""
    gpu = batch.column("gpu")
    head = {"timestamp": batch.column("ts")}
    for place, name in enumerate(("uuid", "node", "model", "index")):
        head[name] = pa.array([identity[place] for identity in names]).take(gpu)
    head["source"] = pa.array(["simulated"]).take(pa.array(np.zeros(len(batch), np.int32)))
    return pa.table(head | {name: batch.column(name) for name in METRICS})


if __name__ == "__main__":
    gpus, seconds, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    fleet, names = Fleet(gpus), identities(gpus)
    with (folder / "rows.csv").open("wb") as text, pa.ipc.new_file(folder / "rows.arrow", SCHEMA) as arrow:
        for first in range(0, seconds, CHUNK):
            batch = fleet.chunk(first, min(CHUNK, seconds - first))
            arrow.write_batch(batch)
            options = pa.csv.WriteOptions(include_header=first == 0, quoting_style="none")
            pa.csv.write_csv(csv_form(batch, names), text, options)
