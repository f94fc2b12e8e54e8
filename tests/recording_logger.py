"""Custom loggers for ``--logger module:Class``. They write every call into a file."""

import json


class RecordingLogger:
    def open(self, run):
        self._path = run.directory / "recorded.jsonl"
        self._write("open", run.name, run.last_step, run.resume_id, dict(run.config))
        return "an-id"

    def scalars(self, values, step):
        self._write("scalars", values, step)

    def close(self):
        self._write("close")

    def _write(self, *call):
        with self._path.open("a") as file:
            file.write(json.dumps(call, default=str) + "\n")


class FailingLogger(RecordingLogger):
    def scalars(self, values, step):
        super().scalars(values, step)
        raise ConnectionError(f"no network at {step}\nand a second line")


class ClosedLogger(RecordingLogger):
    def open(self, run):
        raise PermissionError("wrong key")


class SlowLogger(RecordingLogger):
    """Takes values only when its run's directory has the file ``go``."""

    def open(self, run):
        self._go = run.directory / "go"
        return super().open(run)

    def scalars(self, values, step):
        while not self._go.exists():
            pass
        super().scalars(values, step)
