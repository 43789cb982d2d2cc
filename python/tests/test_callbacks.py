"""The callbacks of training frameworks, called in the order in which these call: by stand-ins, and with GPUVITALS_TEST_REAL by the packages."""

import importlib
import os
import sys
import types

import pytest
from conftest import RATE, marks

import gpuvitals

#: Set where the packages are there: one that is missing fails then.
real = pytest.mark.skipif(not os.environ.get("GPUVITALS_TEST_REAL"), reason="make test-long has the packages")


def said(directory="run"):
    """Phases, steps and values in words."""
    return [f"{name}={value}" if name else phase if phase is not None else f"step {step}" for phase, step, name, value, _ in marks(directory)]


@pytest.fixture
def fresh(monkeypatch):
    """Imports a module of ours anew, for the stand-in that it finds."""

    def of(name, **modules):
        for module, content in modules.items():
            monkeypatch.setitem(sys.modules, module.replace("__", "."), content)
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return module

    return of


class Trainer:
    """Lightning's, as far as a callback sees it: a check of the validation, then steps, a validation and a checkpoint."""

    global_step = 0
    sanity_checking = False

    def fit(self, callback, steps, accumulate=1, fails=None):
        callback.setup(self, None, "fit")
        self.sanity_checking = True
        callback.on_validation_start(self, None)
        callback.on_validation_end(self, None)
        self.sanity_checking = False
        callback.on_train_start(self, None)
        try:
            for batch in range(steps * accumulate):
                callback.on_train_batch_start(self, None, None, batch)
                if fails is not None:
                    raise fails
                self.global_step += (batch + 1) % accumulate == 0
            callback.on_validation_start(self, None)
            callback.on_validation_end(self, None)
            callback.on_save_checkpoint(self, None, {})
            callback.on_train_end(self, None)
        except ValueError as error:
            callback.on_exception(self, None, error)
        callback.teardown(self, None, "fit")


@pytest.fixture
def lightning(fresh):
    stand_in = types.SimpleNamespace(Callback=type("Callback", (), {}))
    return fresh("gpuvitals.lightning", lightning=types.ModuleType("lightning"), lightning__pytorch=types.ModuleType("lightning.pytorch"), lightning__pytorch__callbacks=stand_in)


def test_lightning_says_when_steps_validations_and_checkpoints_begin(lightning):
    callback = lightning.Gpuvitals("run", rate=RATE)
    Trainer().fit(callback, steps=2, accumulate=3)
    assert said() == ["load", "train", "step 0", "step 1", "eval", "train", "checkpoint", ""]
    assert callback.run.summary["marks"] == 8


def test_a_training_that_fails_ends_its_recording(lightning):
    callback = lightning.Gpuvitals("run", rate=RATE)
    Trainer().fit(callback, steps=2, fails=ValueError("no"))
    assert said() == ["load", "train", "step 0"]
    assert gpuvitals.load("run").is_finished and gpuvitals.current() is None
    # A test after the training records nothing anew.
    callback.on_validation_start(Trainer(), None)


def test_a_recording_that_fails_does_not_cost_the_training(lightning, caplog):
    callback = lightning.Gpuvitals("run", rate=RATE)
    callback.setup(Trainer(), None, "fit")
    recorder = callback.run._session.recorder._process
    recorder.kill()
    recorder.wait()
    callback.teardown(Trainer(), None, "fit")
    assert "gpuvitals repair" in caplog.text


def test_transformers_says_when_steps_evaluations_and_checkpoints_begin(fresh):
    stand_in = types.ModuleType("transformers")
    stand_in.TrainerCallback = type("TrainerCallback", (), {})
    module = fresh("gpuvitals.transformers", transformers=stand_in)
    callback = module.Gpuvitals("run", rate=RATE)
    state = types.SimpleNamespace(global_step=0)
    control = types.SimpleNamespace(should_evaluate=False, should_save=False)
    callback.on_evaluate(None, state, control)
    callback.on_train_begin(None, state, control)
    for step in range(2):
        callback.on_step_begin(None, state, control)
        state.global_step += 1
        control.should_evaluate = control.should_save = step == 1
        callback.on_step_end(None, state, control)
        callback.on_log(None, state, control, logs={"loss": 0.5, "name": "x", "is_best": True})
    callback.on_evaluate(None, state, control)
    callback.on_save(None, state, control)
    callback.on_train_end(None, state, control)
    assert said() == ["train", "step 0", "loss=0.5", "step 1", "eval", "loss=0.5", "checkpoint", "train"]
    assert callback.run.summary["marks"] == 8


@real
def test_a_loop_of_the_real_pytorch_is_recorded():
    torch = importlib.import_module("torch")
    layer = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(12, 8), batch_size=4, num_workers=2)
    with gpuvitals.record("run", rate=RATE, sync="torch") as run:
        for batch in run.steps(loader):
            loss = layer(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.value("loss", loss.item())
    words = [word.partition("=")[0] for word in said()]
    assert words == ["step 0", "loss", "step 1", "loss", "step 2", "loss", ""]


@real
def test_a_training_of_the_real_transformers_is_recorded():
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    )
    rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)} for _ in range(6)]
    settings = transformers.TrainingArguments("out", max_steps=3, per_device_train_batch_size=2, logging_steps=1, report_to=[], use_cpu=True)
    callback = importlib.import_module("gpuvitals.transformers").Gpuvitals("run", rate=RATE)
    transformers.Trainer(model, settings, train_dataset=rows, callbacks=[callback]).train()
    assert [word for word in said() if word.startswith("step")] == ["step 0", "step 1", "step 2"]
    assert any(word.startswith("loss=") for word in said())


@real
def test_a_training_of_the_real_lightning_is_recorded():
    torch = importlib.import_module("torch")
    pytorch = importlib.import_module("lightning.pytorch")

    class Model(pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, number):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = importlib.import_module("gpuvitals.lightning").Gpuvitals("run", rate=RATE)
    trainer = pytorch.Trainer(max_steps=3, callbacks=[callback], accelerator="cpu", logger=False, enable_progress_bar=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(12, 8), batch_size=4))
    assert [word for word in said() if word.startswith("step")] == ["step 0", "step 1", "step 2"]
