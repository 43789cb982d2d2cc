import { Empty } from "../../shared/states";

const EXAMPLE = `kubernetes:
  clusters:
  - name: east
    api_url: https://10.0.0.1:6443
    token_file: /etc/gpuvitals/east.token
    ca_file: /etc/gpuvitals/east-ca.pem`;

/** How clusters come here. */
export function NotConfigured() {
  return (
    <>
      <h1 className="sr-only">Clusters</h1>
      <Empty title="No clusters are configured">
        <p>
          gpuvitals can read the NVIDIA GPUs of clusters on which nothing may be installed. Name them in the file of the configuration
          and start <code>gpuvitals up</code> or <code>gpuvitals serve</code> with <code>--config FILE</code>:
        </p>
        <pre aria-label="Example of the configuration" className="card mt-3 overflow-x-auto bg-page! p-3 text-left font-mono text-xs text-fg">
          {EXAMPLE}
        </pre>
        <p className="mt-3">
          The token needs the right to list nodes, and in the namespace of the driver those to list pods and to run commands in them:{" "}
          <code>docs/kubernetes.md</code>.
        </p>
      </Empty>
    </>
  );
}
