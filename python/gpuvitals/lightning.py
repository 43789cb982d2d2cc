"""For Lightning: `Trainer(callbacks=[gpuvitals.lightning.Gpuvitals("run")])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._callback import Training

if TYPE_CHECKING:
    # Untyped here, so that types are checked without Lightning, too.
    Callback: Any = object
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback


class Gpuvitals(Callback):  # type: ignore[misc]
    """Records a training, and marks its steps, validations and checkpoints. Takes what `gpuvitals.record` takes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__()
        self._training = Training(*arguments, **named)
        self._step: int | None = None

    @property
    def run(self) -> Any:
        """The `gpuvitals.Run`, for marks and values of your own."""
        return self._training.run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._training.begin()
            self.run.phase("load")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._training.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._training.end()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.run.phase("train")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # Batches whose gradients are added up are one step.
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            self.run.phase("step", trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._is_training(trainer):
            self.run.phase("eval")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._is_training(trainer):
            self.run.phase("train")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        # Lightning does not say when it has been written: the next step, or the end, ends it.
        if self._is_training(trainer):
            self.run.phase("checkpoint")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.run.phase("")

    def _is_training(self, trainer: Any) -> bool:
        return bool(self.run.is_running) and not trainer.sanity_checking
