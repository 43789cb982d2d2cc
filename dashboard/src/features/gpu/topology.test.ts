import { expect, it } from "vitest";
import { pictureOf, wordsOf, type Place } from "./topology";

const place = (index: number, part: Partial<Place> = {}): Place => ({ id: `g${index}`, name: `n1 / GPU ${index}`, index, pci: `0000:0${index}:00.0`, numa_node: index < 2 ? 0 : 1, links_up: null, ...part });
type Link = Parameters<typeof pictureOf>[0]["links"][number];
const link = (from: number, to: number, links = 1): Link => ({ gpu: `g${from}`, to_gpu: `g${to}`, peer: `0000:0${to}:00.0`, links });
const ends = (gpus: readonly Place[], links: readonly Link[]) => ({ hostname: "n1", as_of: "2026-11-20T16:00:00Z", gpus: [...gpus], links: [...links] });
const FOUR = [0, 1, 2, 3].map((index) => place(index));
const mesh = FOUR.flatMap(({ index: from }) => FOUR.filter(({ index: to }) => to !== from).map(({ index: to }) => link(from ?? 0, to ?? 0)));

it("puts GPUs on their NUMA nodes, and tells each pair of linked GPUs once", () => {
  const { groups, spans, switched } = pictureOf(ends([place(3), ...FOUR.slice(0, 3)], [link(0, 3, 2), link(3, 0, 4), link(1, 1)]));
  expect(groups.map(({ numa, gpus }) => [numa, gpus.map(({ id }) => id)])).toEqual([[0, ["g0", "g1"]], [1, ["g3", "g2"]]]);
  expect([spans, switched]).toEqual([[{ from: 0, to: 2, links: 4 }], []]);
});

it.each([
  ["a mesh", ends(FOUR, mesh), ["NUMA node 0: GPU 0, GPU 1; NUMA node 1: GPU 2, GPU 3.", "Every GPU is linked to every other one."], []],
  ["two pairs", ends(FOUR.map((gpu) => ({ ...gpu, numa_node: null })), [link(0, 1, 4), link(3, 2)]), ["Linked: GPU 0 and GPU 1 (4 links); GPU 2 and GPU 3."], ["GPU 2 has 1 link, the others 4.", "GPU 3 has 1 link, the others 4."]],
  ["a switch, of which one GPU has lost links", ends(FOUR.map((gpu) => ({ ...gpu, numa_node: null, links_up: gpu.index === 2 ? 16 : 18 })), FOUR.map(({ id }) => ({ gpu: id, to_gpu: null, peer: "switch", links: id === "g2" ? 16 : 18 }))), ["Every GPU is linked to a switch."], ["GPU 2 has 16 links, the others 18."]],
  ["a lost GPU", ends(FOUR.slice(0, 1), [{ ...link(0, 1), to_gpu: null }]), ["NUMA node 0: GPU 0."], ["Links lead to 0000:01:00.0, which no GPU of this host reports."]],
  ["a host of which not everything was read", { ...ends(FOUR.slice(0, 1), [{ ...link(0, 1), to_gpu: null }]), partial: ["a day is damaged"] }, ["NUMA node 0: GPU 0."], []],
  ["a GPU whose links nobody tells", ends(FOUR.map((gpu) => ({ ...gpu, numa_node: null })), [link(0, 1, 4), link(1, 0, 4)]), ["Linked: GPU 0 and GPU 1 (4 links)."], []],
  ["cards that nothing is known of", ends([place(0, { numa_node: null })], []), [], []],
])("says %s in words", (_name, topology, all, odd) => expect(wordsOf(topology)).toEqual({ all, odd }));
