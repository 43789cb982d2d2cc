type Tell = (entries: readonly { readonly isIntersecting: boolean }[]) => void;

/** Stands in for the browser's: a test's page has no size, so the test says what is on the screen. All is, unless told otherwise. */
export class FakeIntersectionObserver {
  static isSeen = true;
  static made: FakeIntersectionObserver[] = [];

  constructor(private readonly tell: Tell) {
    FakeIntersectionObserver.made.push(this);
  }

  observe(): void {
    this.move(FakeIntersectionObserver.isSeen);
  }

  /** What it watches comes onto the screen, or leaves it. */
  move(isIntersecting: boolean): void {
    this.tell([{ isIntersecting }]);
  }

  disconnect(): void {
    FakeIntersectionObserver.made = FakeIntersectionObserver.made.filter((each) => each !== this);
  }
}
