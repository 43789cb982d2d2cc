import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { healthQuery, statsQuery } from "../../api/queries";
import { API_BASE_URL, PAGE_VERSION } from "../../shared/config";
import { ABSENT } from "../../shared/format";
import { formatUptime } from "../../shared/time";

/** Which gpuvitals this is, what it is made of, and where it is described. */
export function AboutPage() {
  const health = useQuery(healthQuery());
  const stats = useQuery(statsQuery());
  const version = health.data?.version ?? ABSENT;
  const uptime = stats.data?.gateway.uptime_seconds;
  return (
    <div className="max-w-3xl space-y-4">
      <h1 className="text-base font-semibold">About gpuvitals</h1>
      <Part title="This server">
        <Row name="Version">
          {version}
          {version !== ABSENT && version !== PAGE_VERSION && <span className="text-warn"> (this page was built for {PAGE_VERSION})</span>}
        </Row>
        <Row name="Gateway up for">{uptime === undefined ? ABSENT : formatUptime(uptime)}</Row>
        <Row name="API">{API_BASE_URL === "" ? window.location.origin : API_BASE_URL}</Row>
      </Part>
      <Part title="Documents">
        <Row name="API">
          <Out to={`${API_BASE_URL}/docs`}>described, to be tried</Out>, <Out to={`${API_BASE_URL}/openapi.yaml`}>OpenAPI</Out>
        </Row>
        <Row name="Commands">
          <code>gpuvitals help</code>; with the Debian package <code>man gpuvitals</code> and <code>/usr/share/doc/gpuvitals</code>
        </Row>
        <Row name="Figures of this server">
          <Out to={`${API_BASE_URL}/metrics`}>for Prometheus</Out>
        </Row>
      </Part>
      <Part title="Licences">
        <Row name="gpuvitals">Apache License 2.0</Row>
        <Row name="What this page has of others">
          <Out to="/licenses.md">names and texts</Out>
        </Row>
        <Row name="What the program has of others">
          <code>THIRD-PARTY-LICENCES</code> and the bill of materials <code>gpuvitals.cdx.json</code>, in <code>/usr/share/doc/gpuvitals</code> of packages and images
        </Row>
      </Part>
    </div>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2 className="border-b border-line px-3.5 py-2.5 text-[13px] font-medium">{title}</h2>
      <dl className="grid grid-cols-[minmax(6rem,12rem)_1fr] gap-x-6 gap-y-2 px-3.5 py-3 text-[13px]">{children}</dl>
    </section>
  );
}

function Row({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <>
      <dt className="text-muted">{name}</dt>
      <dd className="min-w-0 [overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}

function Out({ to, children }: { readonly to: string; readonly children: ReactNode }) {
  return (
    <a href={to} target="_blank" rel="noreferrer" className="text-accent underline underline-offset-2">
      {children}
    </a>
  );
}
