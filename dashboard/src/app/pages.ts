import type { ComponentType } from "react";
import { CLUSTERS, NODE } from "../features/clusters/address";
import { HOSTS } from "../features/hosts/address";
import { JOBS } from "../features/jobs/address";
import { QUEUE } from "../features/queue/address";
import { USE } from "../features/use/address";
import { COMPARE, FLEET, GPU, HOST, JOB, NOW } from "../parts/addresses";
import { address, type Address, type Named } from "../shared/address";

interface PageOf<Path extends string> extends Pick<Address<Path, object>, "unread"> {
  /** A segment that begins with a colon stands for any text, which the page is given by that name. */
  readonly path: Path;
  /** Of the browser's tab, before the name of the program. */
  readonly title: string | ((named: Named<Path>) => string);
  /** The page itself, loaded when it is looked at first. */
  readonly load: () => Promise<ComponentType<Named<Path>>>;
  /** Its name in the header. */
  readonly tab?: string;
  /** Whether the tab is there only where clusters are read. */
  readonly isOfClusters?: true;
  /** Whether it shows what is now, also where the fleet is shown as of another instant. */
  readonly isOfNow?: true;
  /** The path of the page whose tab it belongs to. */
  readonly under?: string;
  /** What leads to it by keyboard, and what the list of keys says of it. */
  readonly key?: readonly [key: string, help: string];
}

/** A page of which only its table knows what its path names. */
export type Page = PageOf<string>;

/** A page at an address. Title and page are checked against what its path names. */
function page<Path extends string>({ path, unread }: Pick<Address<Path, object>, "path" | "unread">, entry: Omit<PageOf<Path>, "path" | "unread">): Page {
  const whole: PageOf<Path> = { ...entry, path, unread };
  return whole;
}

/** Where an address holds nothing but the page. */
const STATISTICS = address("/statistics", {});
const ABOUT = address("/about", {});

/** Every page. Routes, titles, tabs, keys and their help follow from it, and the list of paths that the server answers with the page. */
export const PAGES: readonly Page[] = [
  page(NOW, { title: "", tab: "Now", key: ["n", "What is wrong now"], load: async () => (await import("../features/now/NowPage")).NowPage }),
  page(FLEET, { title: "GPUs", tab: "GPUs", key: ["g", "List of GPUs"], load: async () => (await import("../features/fleet/FleetPage")).FleetPage }),
  page(GPU, { title: ({ id }) => id, under: FLEET.path, load: async () => (await import("../features/gpu/GpuPage")).GpuPage }),
  page(COMPARE, { title: "GPUs compared", under: FLEET.path, load: async () => (await import("../features/gpu/ComparePage")).ComparePage }),
  page(HOSTS, { title: "Hosts", tab: "Hosts", key: ["h", "Hosts"], load: async () => (await import("../features/hosts/HostsPage")).HostsPage }),
  page(HOST, { title: ({ name }) => name, under: HOSTS.path, load: async () => (await import("../features/gpu/HostPage")).HostPage }),
  page(USE, { title: "Fleet over time", tab: "Fleet", key: ["f", "The fleet over time: how much was used, and by whom"], load: async () => (await import("../features/use/FleetUsePage")).FleetUsePage }),
  page(JOBS, {
    title: "Jobs and namespaces",
    tab: "Jobs",
    key: ["w", "Jobs and namespaces: who wastes GPU hours"],
    load: async () => (await import("../features/jobs/JobsPage")).JobsPage,
  }),
  page(JOB, { title: ({ id }) => id, under: JOBS.path, load: async () => (await import("../features/gpu/JobPage")).JobPage }),
  page(CLUSTERS, {
    title: "Clusters",
    tab: "Clusters",
    isOfClusters: true,
    isOfNow: true,
    key: ["c", "Clusters"],
    load: async () => (await import("../features/clusters/ClustersPage")).ClustersPage,
  }),
  page(NODE, {
    title: ({ cluster, node }) => `${node} · ${cluster}`,
    under: CLUSTERS.path,
    isOfNow: true,
    load: async () => (await import("../features/clusters/NodePage")).NodePage,
  }),
  page(QUEUE, { title: "Queue", tab: "Queue", isOfNow: true, key: ["q", "Queue"], load: async () => (await import("../features/queue/QueuePage")).QueuePage }),
  page(STATISTICS, { title: "Statistics", tab: "Statistics", isOfNow: true, key: ["s", "Statistics"], load: async () => (await import("../features/health/StatisticsPage")).StatisticsPage }),
  page(ABOUT, { title: "About", isOfNow: true, load: async () => (await import("../features/about/AboutPage")).AboutPage }),
];
