import type uPlot from "uplot";

/** Stands in for uPlot: remembers what it was built with, fed and asked to do. */
export class FakePlot {
  static made: FakePlot[] = [];

  readonly fed: uPlot.AlignedData[];
  readonly scales: { min: number; max: number }[] = [];
  destroyed = 0;

  constructor(
    readonly options: uPlot.Options,
    data: uPlot.AlignedData,
    target: HTMLElement,
  ) {
    this.fed = [data];
    target.append(document.createElement("canvas"));
    FakePlot.made.push(this);
  }

  setData(data: uPlot.AlignedData): void {
    this.fed.push(data);
  }

  setScale(_key: string, scale: { min: number; max: number }): void {
    this.scales.push(scale);
  }

  setSize(): void {
    // the box of a test has no size
  }

  batch(work: () => void): void {
    work();
  }

  destroy(): void {
    this.destroyed += 1;
  }
}
