"""What TensorFlow and Keras say went wrong is cut down to the reason, and to the user's own lines."""

from __future__ import annotations

import pytest

from oomtune.worker.process.error_reasons import reason, users_frames

LIBRARY = "/venv/lib/python3.11/site-packages/keras/src/trainer.py"
GRAPH = f"""Graph execution error:

Detected at node compile_loss/sparse/SparseSoftmax defined at (most recent call last):
  File "<string>", line 1, in <module>

  File "{LIBRARY}", line 399, in fit

  File "/home/me/net.py", line 12, in call

Received a label value of 5 which is outside the valid range of [0, 2).  Label values: 5
\t [[{{{{node compile_loss/sparse/SparseSoftmax}}}}]] [Op:__inference_multi_step_on_iterator_313]"""
CALLED = f"""in user code:

    File "/home/me/steps.py", line 7, in step  *
        with tf.GradientTape() as t: l=m(x)
    File "{LIBRARY}", line 239, in assert_input_compatibility
        raise ValueError(

    ValueError: Exception encountered when calling Sequential.call().

    \x1b[1mInput 0 of layer 'dense' is incompatible:
    expected axis -1 to have value 4\x1b[0m

    Arguments received by Sequential.call():
      inputs=tf.Tensor(shape=(1, 5), dtype=float32)
"""
GENERATOR = f"""{{{{function_node __wrapped__IteratorGetNext}}}} ValueError: bad row 50
Traceback (most recent call last):

  File "{LIBRARY}", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

  File "/home/me/own.py", line 23, in rows
    raise ValueError("bad row 50")

ValueError: bad row 50


\t [[{{{{node PyFunc}}}}]] [Op:IteratorGetNext] name: """


@pytest.mark.parametrize(
    ("message", "wanted", "line"),
    [
        (
            GRAPH,
            "Received a label value of 5 which is outside the valid range of [0, 2). Label values: 5 "
            "(at node compile_loss/sparse/SparseSoftmax)",
            'File "/home/me/net.py", line 12, in call',
        ),
        (
            CALLED,
            "Input 0 of layer 'dense' is incompatible: expected axis -1 to have value 4",
            'File "/home/me/steps.py", line 7, in step',
        ),
        (GENERATOR, "ValueError: bad row 50", 'File "/home/me/own.py", line 23, in rows'),
    ],
)
def test_the_reason_is_kept_with_the_users_own_lines_and_no_others(message: str, wanted: str, line: str) -> None:
    assert reason(ValueError(message)) == wanted
    assert users_frames(message).strip() == line


@pytest.mark.parametrize("message", ["", "my model\nis broken", 'File "/home/me/a.py", line 3, in f'])
def test_what_the_users_own_code_says_stays_as_it_is(message: str) -> None:
    assert reason(RuntimeError(message)) == message


def test_the_reason_of_an_out_of_memory_error_still_names_the_tensor() -> None:
    said = "OOM when allocating tensor with shape[64,512] and type float on /device:CPU:0 by allocator cpu"
    assert said in reason(MemoryError(GRAPH.replace("Received a label value of 5", said)))
