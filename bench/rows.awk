# Writes a wide CSV of 10 metrics: -v gpus=247 -v seconds=3600. Values are random but shaped like a fleet's; made here,
# so labelled simulated.
BEGIN {
  srand(1)
  print "timestamp,Hostname,gpu_id,uuid,modelName,source,utilization_pct,memory_utilization_pct,power_w,temperature_c,memory_used_mb,memory_free_mb,gpu_clock_mhz,mem_clock_mhz,encoder_utilization_pct,decoder_utilization_pct"
  start = 1767225600
  for (t = 0; t < seconds; t++)
    for (g = 0; g < gpus; g++) {
      busy = (g % 2)
      used = busy ? 70000 + int(rand() * 4000) : 4
      printf "%s,bench-node-%03d,%d,GPU-00000000-0000-0000-0000-%012d,NVIDIA H100 80GB HBM3,simulated,%d,%d,%.3f,%d,%d,%d,%d,2619,0,0\n", \
        strftime("%Y-%m-%dT%H:%M:%SZ", start + t, 1), int(g / 8), g % 8, g, busy ? 90 + int(rand() * 11) : 0, \
        busy ? 30 + int(rand() * 50) : 0, busy ? 500 + rand() * 189 : 66 + rand() * 10, busy ? 60 + int(rand() * 20) : 28, \
        used, 81007 - used, busy ? 1965 + 15 * int(rand() * 2) : 345
    }
}
