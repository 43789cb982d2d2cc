//! The questions: those of our dashboards, and every operator and function on series of every shape.

/// Those of our dashboards whose files begin so, with what Grafana puts in for its variables.
pub(crate) fn of_dashboards(begin: &str) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana");
    let mut queries = Vec::new();
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if !file.file_name().to_str().unwrap().starts_with(begin) {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        for expr in text.split("\"expr\": \"").skip(1) {
            let expr = expr.split("\",\n").next().unwrap().split("\"\n").next().unwrap();
            let expr = expr.replace("\\\"", "\"").replace("\\\\", "\\");
            let expr = expr
                .replace("$__rate_interval", "4m")
                .replace("$__range", "30m")
                .replace("$cluster", ".*")
                .replace("$node", ".*")
                .replace("$namespace", ".*")
                .replace("$gpu", ".*")
                .replace("$uuid", ".*");
            queries.push(expr);
        }
    }
    queries.sort();
    queries.dedup();
    queries
}

/// Series of every shape: a gauge, one of several of a family, a counter, whole numbers, DCGM's in both dialects, a host's.
const SERIES: [&str; 9] = [
    "gpu_power_watts",
    "gpu_temperature_celsius{sensor=\"gpu\"}",
    "gpu_energy_joules_total",
    "gpu_memory_used_bytes{node=\"n0\"}",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname=~\"n.\"}",
    "host_cpu_utilization_ratio",
    "gpu_ecc_errors_total{severity=\"corrected\",lifetime=\"volatile\",uuid!~\".*[34]\"}",
    "gpu_clock_hertz",
];

const OVER_RANGE: [&str; 19] = [
    "rate",
    "irate",
    "increase",
    "delta",
    "idelta",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "changes",
    "resets",
    "deriv",
    "absent_over_time",
    "quantile_over_time",
];

const AGGREGATES: [&str; 8] = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];

/// Everything else, each once. The ends of subqueries are off the steps: version 2 has a value at the beginning of a range in it,
/// version 3 has not.
const OTHERS: &[&str] = &[
    "42",
    "time()",
    "vector(time())",
    "hour()",
    "minute(vector(1795532400))",
    "days_in_month(vector(1709164800))",
    "pi() * 2",
    "-gpu_power_watts",
    "1 / 0",
    "0 / 0",
    "(1 + 2) * 3 ^ 2 ^ 0.5",
    "-2 ^ 2",
    "round(gpu_power_watts, 5)",
    "clamp(gpu_power_watts, 100, 300)",
    "clamp_min(gpu_power_watts, 200)",
    "clamp_max(gpu_power_watts, scalar(avg(gpu_power_watts)))",
    "absent(gpu_nothing{node=\"n0\",gpu=~\"1\"})",
    "absent(gpu_power_watts{uuid=\"none\"})",
    "absent_over_time(gpu_power_watts{uuid=\"none\"}[5m])",
    "gpu_nothing",
    "sum(gpu_nothing)",
    "scalar(gpu_power_watts{uuid=\"GPU-00000001\"})",
    "sort(gpu_power_watts)",
    "sort_desc(gpu_power_watts)",
    "gpu_power_watts{node=~\"n[0-9]\",vendor!=\"amd\"}",
    "gpu_power_watts{node!~\"n0|n9\"}",
    "gpu_power_watts{pod=\"\"}",
    "{__name__=\"gpu_power_watts\",gpu=\"1\"}",
    "{__name__=~\"gpu_(power|power_average)_watts\"}",
    "count({__name__=~\"gpu_power.*\"}) by (__name__)",
    "gpu_power_watts @ 1795533400",
    "gpu_power_watts @ start()",
    "gpu_power_watts @ end() offset 1m",
    "gpu_power_watts @ end()",
    "max_over_time(gpu_power_watts[5m] @ end())",
    "gpu_power_watts[3m:30s]",
    "(gpu_power_watts[3m])",
    "rate(gpu_energy_joules_total[2m])[10m1ms:1m]",
    "sum by (node) (gpu_power_watts)[5m1ms:] offset 3m",
    "gpu_power_watts[2m1ms:20s] @ 1795534407",
    "rate(gpu_energy_joules_total[5m] @ 1795534400)",
    "gpu_power_watts offset -3m",
    "max_over_time(gpu_power_watts[10m] offset 5m)",
    "max_over_time(rate(gpu_energy_joules_total[2m])[10m1ms:1m])",
    "avg_over_time(sum by (node) (gpu_power_watts)[5m1ms:30s])",
    "min_over_time((gpu_power_watts > 400)[10m1ms:20s] offset 2m)",
    "count_over_time(vector(1)[10m1ms:1m])",
    "sum_over_time(time()[3m1ms:1m])",
    "quantile_over_time(0.5, gpu_power_watts[7m])",
    "quantile(1.5, gpu_power_watts)",
    "quantile(scalar(vector(0.25)), gpu_power_watts)",
    "topk(scalar(count(gpu_power_watts) or vector(2)) / 2, gpu_power_watts)",
    "topk(0 / 0, gpu_power_watts)",
    "bottomk(1e20, gpu_power_watts)",
    "count_values(\"width\", gpu_pcie_link_width)",
    "count_values by (node) (\"width\", gpu_pcie_link_width > 8)",
    "count_values by (node) (\"node\", gpu_pcie_link_width)",
    "count_values by (node, uuid) (\"node\", gpu_pcie_link_width)",
    "count_values without (uuid) (\"node\", gpu_pcie_link_width)",
    "count_values without (node, uuid) (\"node\", gpu_pcie_link_width)",
    "label_replace(gpu_power_watts, \"short\", \"$1\", \"uuid\", \"GPU-0*(.*)\")",
    "label_replace(gpu_power_watts, \"short\", \"x\", \"uuid\", \"no match\")",
    "label_replace(gpu_power_watts, \"node\", \"\", \"node\", \".*\")",
    "label_replace(gpu_power_watts, \"uuid\", \"same\", \"uuid\", \".*\")",
    "label_join(gpu_power_watts, \"place\", \":\", \"node\", \"gpu\")",
    "gpu_info",
    "count by (model) (gpu_info)",
    "gpu_attribution_info",
    "count by (namespace) (gpu_attribution_info)",
    "gpu_power_watts * on (uuid) group_left (pod, namespace) gpu_attribution_info",
    "sum by (namespace) (gpu_power_watts * on (uuid) group_left (namespace) gpu_attribution_info)",
    "gpu_info * on (uuid) group_right gpu_temperature_celsius",
    "gpu_power_watts + on (node) group_left sum by (node) (gpu_power_watts)",
    "gpu_power_watts / on (node) group_left count by (node) (gpu_power_watts)",
    "gpu_power_watts * on (node) gpu_power_watts",
    "gpu_power_watts == on (node) max by (node) (gpu_power_watts)",
    "gpu_power_watts{node=\"n0\"} + on (node) gpu_power_watts{node=\"n1\"}",
    "gpu_power_watts{node=\"n2\"} + on (node) gpu_power_watts",
    "gpu_temperature_celsius + on (uuid) gpu_power_watts",
    "sum(gpu_power_watts) by (node) / sum(gpu_power_watts) by (node)",
    "sum by (Hostname) (DCGM_FI_DEV_FB_USED)",
    "avg by (pod) (DCGM_FI_DEV_GPU_UTIL)",
    "avg_over_time(DCGM_FI_DEV_GPU_UTIL{pod!=\"\"}[5m])",
    "increase(gpu_energy_joules_total[1h]) / 3.6e6",
    "rate(gpu_energy_joules_total[15s])",
    "rate(gpu_energy_joules_total[20m]) > 10 and gpu_utilization_ratio < 0.5",
    "delta(gpu_temperature_celsius{sensor=\"gpu\"}[20m])",
    "predict_linear(gpu_memory_used_bytes[30m], -600)",
    "avg(gpu_utilization_ratio) or vector(0)",
    "count(gpu_nothing) or vector(0)",
    "sum(rate(host_interrupts_total[5m])) by (node)",
    "host_load_average",
    "clamp_min(gpu_power_watts * (0 / 0), 200)",
    "clamp_max(gpu_power_watts * (0 / 0), 200)",
    "1 == 1",
    "gpu_power_watts ==",
    "rate(gpu_power_watts)",
    "sum(gpu_power_watts[5m])",
    "gpu_power_watts + \"text\"",
    "nothing_like_this(gpu_power_watts)",
];

pub(crate) fn queries() -> Vec<String> {
    let mut queries = of_dashboards("gpuvitals-");
    // States of exporters are not kept.
    let states =
        ["gpu_up", "gpu_condition", "gpuvitals_", "gpu_last_sample", "up and", "_window", "reason=\"any\""];
    queries.retain(|query| states.iter().all(|state| !query.contains(state)));
    queries.extend(of_series());
    queries.extend(of_operators());
    queries.extend(of_functions());
    queries.extend(OTHERS.iter().map(|query| (*query).to_owned()));
    queries
}

/// Every function of ranges and every aggregation, of series of every shape.
fn of_series() -> Vec<String> {
    let mut queries = Vec::new();
    let mut add = |query: String| queries.push(query);
    for series in SERIES {
        add(series.to_owned());
        add(format!("{series} offset 7m"));
        add(format!("{series}[2h]"));
        let is_counter = series.contains("_total") || series.contains("TOTAL");
        for function in OVER_RANGE {
            // Of a gauge they mean nothing.
            if !is_counter && ["rate", "increase"].contains(&function) {
                continue;
            }
            let argument = if function == "quantile_over_time" { "0.9, " } else { "" };
            add(format!("{function}({argument}{series}[5m])"));
        }
        for aggregate in AGGREGATES {
            add(format!("{aggregate}({series})"));
            add(format!("{aggregate} by (node, vendor) ({series})"));
        }
        // Of equal values anyone may be among the largest.
        if !series.contains("clock") {
            add(format!("topk(3, {series})"));
            add(format!("bottomk by (node) (1, {series})"));
        }
        add(format!("quantile(0.95, {series})"));
        add(format!("predict_linear({series}[10m], 3600)"));
        add(format!("sum without (uuid, gpu, UUID) (delta({series}[4m]))"));
    }
    queries
}

/// Every operator.
fn of_operators() -> Vec<String> {
    let mut queries = Vec::new();
    let mut add = |query: String| queries.push(query);
    // Version 2 keeps the name in an `atan2`.
    add("sum(gpu_power_watts) atan2 300".to_owned());
    add("gpu_power_watts atan2 on (uuid) gpu_utilization_ratio".to_owned());
    for binary in ["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">="] {
        add(format!("gpu_power_watts {binary} on (uuid) gpu_power_limit_watts{{limit=\"set\"}}"));
        add(format!("gpu_power_watts {binary} 300"));
        add(format!("2 {binary} gpu_utilization_ratio"));
        add(format!("gpu_temperature_celsius {binary} ignoring (sensor) group_left gpu_power_watts"));
    }
    for comparison in ["==", "!=", "<", "<=", ">", ">="] {
        add(format!("gpu_power_watts {comparison} bool 300"));
        add(format!("gpu_power_watts {comparison} bool on (uuid) gpu_power_limit_watts{{limit=\"set\"}}"));
        add(format!("1 {comparison} bool 2"));
    }
    for set in ["and", "or", "unless"] {
        add(format!("gpu_power_watts {set} gpu_power_watts{{node=\"n0\"}}"));
        add(format!("gpu_power_watts > 500 {set} on (uuid) (gpu_utilization_ratio > 0.5)"));
        add(format!("sum by (node) (gpu_power_watts) {set} on () vector(1)"));
        add(format!("gpu_power_watts {set} ignoring (gpu) DCGM_FI_DEV_POWER_USAGE"));
    }
    queries
}

/// Every function of a vector.
fn of_functions() -> Vec<String> {
    let mut queries = Vec::new();
    let mut add = |query: String| queries.push(query);
    for function in [
        "abs",
        "ceil",
        "floor",
        "exp",
        "ln",
        "log2",
        "log10",
        "sqrt",
        "sgn",
        "deg",
        "rad",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "round",
        "timestamp",
        "minute",
        "hour",
        "day_of_week",
        "day_of_month",
        "day_of_year",
        "days_in_month",
        "month",
        "year",
        "absent",
        "scalar",
        "-",
    ] {
        add(format!("{function}(gpu_utilization_ratio)"));
        add(format!("{function}(sum(gpu_power_watts) - 1000)"));
    }
    queries
}
