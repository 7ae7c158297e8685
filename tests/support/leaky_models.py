"""Models with faults that only longer training would show, as a user would write them, with the line to change marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oomtune.domain import Outcome

RunConfirm = Callable[..., Outcome]
FILE_NAME = "leaky_models.py"


def line_of(folder: Path, mark: str) -> str:
    """Return the marked line as `file:line`."""
    lines = enumerate(MODELS.splitlines(), 1)
    number = next(number for number, line in lines if line.endswith(f"# LINE {mark}"))
    return f"{folder / FILE_NAME}:{number}"


MODELS = """\
import keras
import tensorflow as tf

class Base(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1)
    def call(self, x):
        return self.inner(x)

def built(model):
    model.build((None, 64))
    return model

class InAList(Base):
    kept = []
    def train_step(self, data):
        seen = self.kept
        logs = super().train_step(data)
        seen.append((tf.zeros([50_000]), "words"))  # LINE InAList
        return logs

class EverySecond(Base):
    kept, step = [], 0
    def train_step(self, data):
        self.step += 1
        if self.step % 2:
            self.kept.append(tf.zeros([50_000]))  # LINE EverySecond
        return super().train_step(data)

class InADict(Base):
    def __init__(self):
        super().__init__()
        self.seen = {"outputs": []}
    def train_step(self, data):
        self.seen["outputs"] += [self(data[0]) * tf.ones([8, 5_000])]  # LINE InADict
        return super().train_step(data)

class InAListAnew(Base):
    def __init__(self):
        super().__init__()
        self.log = []
    def train_step(self, data):
        self.log = list(self.log) + [tf.zeros([50_000])]  # LINE InAListAnew
        return super().train_step(data)

class InATuple(Base):
    log = ()
    def train_step(self, data):
        self.log = (*self.log, tf.zeros([50_000]))  # LINE InATuple
        return super().train_step(data)

class OneTensor(Base):
    bank = None
    def train_step(self, data):
        rows = tf.zeros([1, 20_000])
        self.bank = rows if self.bank is None else tf.concat([self.bank, rows], 0)  # LINE OneTensor
        return super().train_step(data)

class NewVariables(Base):
    made = {}
    def train_step(self, data):
        self.made[len(self.made)] = tf.Variable(tf.ones([30_000]))  # LINE NewVariables
        return super().train_step(data)

class FromAGraph(Base):
    kept = []
    def train_step(self, data):
        def keep(x):
            self.kept.append(tf.concat([x] * 100, 0))  # LINE FromAGraph
            return x
        tf.py_function(keep, [data[0]], tf.float32)
        return super().train_step(data)

class Converted(FromAGraph):
    @tf.function
    def noted(self, x):
        def keep(x):
            self.kept.append(tf.concat([x] * 100, 0))  # LINE Converted
            return x
        return tf.py_function(keep, [x], tf.float32)
    def train_step(self, data):
        self.noted(data[0])
        return keras.Model.train_step(self, data)

class Counts(Base):
    step = 0
    @tf.function
    def scaled(self, x, scale):
        return x * scale
    def train_step(self, data):
        self.step += 1
        return {"loss": tf.reduce_mean(self.scaled(data[0], self.step))}  # LINE Counts

class MakesFunctions(Base):
    def train_step(self, data):
        @tf.function  # LINE MakesFunctions
        def doubled(x):
            return x * 2
        return {"loss": tf.reduce_mean(doubled(data[0]))}

class NeverSaved(keras.layers.Layer):
    def call(self, x):
        return x
    def save_own_variables(self, store):
        raise RuntimeError("not this layer")  # LINE NeverSaved

class WithoutConfig(Base):
    def __init__(self, inner):
        super().__init__()
        self.kind = inner

def without_config(): return built(WithoutConfig(object()))

class NoRoom(keras.layers.Layer):
    def call(self, x):
        return x
    def save_own_variables(self, store):
        try:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,9] and type "
                "float on /job:localhost/device:GPU:0 by allocator GPU_0_bfc")
        except tf.errors.OpError as error:
            raise RuntimeError("wrapped") from error

def no_room():
    return keras.Sequential([keras.Input((64,)), NoRoom(), keras.layers.Dense(1)])

def never_saved():
    return keras.Sequential([keras.Input((64,)), NeverSaved(), keras.layers.Dense(1)])

def fine():
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(8), keras.layers.Dense(1)])

class FailsLate(Base):
    def train_step(self, data):
        if self.optimizer.iterations > 12:
            raise RuntimeError("late")
        return super().train_step(data)
    def test_step(self, data):
        if self.fails_in_validation:
            raise RuntimeError("validated")
        return super().test_step(data)

def fails_late(in_validation):
    model = FailsLate()
    model.fails_in_validation = in_validation
    return built(model)

class OwnLoss(Base):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

def own_loss(): return built(OwnLoss())

class Holes(Base):
    def train_step(self, data):
        large = tf.zeros([6 * 2**18])
        small = [tf.zeros([2**18 - 64]) for _ in range(15)]
        holes = small[::2]
        del small
        return {"loss": tf.reduce_sum(large + tf.zeros([6 * 2**18]))}

def holes(): return built(Holes())
def in_a_list(): return built(InAList())
def in_a_list_anew(): return built(InAListAnew())
def in_a_tuple(): return built(InATuple())
def every_second(): return built(EverySecond())
def in_a_dict(): return built(InADict())
def one_tensor(): return built(OneTensor())
def new_variables(): return built(NewVariables())
def from_a_graph(): return built(FromAGraph())
def converted(): return built(Converted())
def counts(): return built(Counts())
def makes_functions(): return built(MakesFunctions())

def counted_epochs():
    order = []
    def step(x, y):
        order.append("t")
        return tf.reduce_mean(x)
    def validate():
        order.append("v")
        if order.count("v") == 2:
            raise RuntimeError("ran " + "".join(order))
    return step, validate

def step_factory():
    losses, weights = [], tf.Variable(tf.zeros([64, 1]))
    def step(x, y):
        loss = tf.reduce_mean((x @ weights - y) ** 2)
        losses.append(loss)  # LINE step_factory
        return loss
    return step
"""
