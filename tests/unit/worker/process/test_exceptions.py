"""Messages of TensorFlow and Keras are reduced to the reason and the user's own lines."""

from __future__ import annotations

import pytest

from oomtune.worker.process.exceptions import frames_in_message, reason

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
    ("message", "expected", "line"),
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
def test_a_library_message_keeps_its_reason_and_only_the_users_lines(message: str, expected: str, line: str) -> None:
    assert reason(ValueError(message)) == expected
    assert frames_in_message(message).strip() == line


@pytest.mark.parametrize("message", ["", "my model\nis broken", 'File "/home/me/a.py", line 3, in f'])
def test_a_message_of_the_users_own_code_stays_whole(message: str) -> None:
    assert reason(RuntimeError(message)) == message


def test_an_out_of_memory_reason_still_names_the_tensor() -> None:
    message = "OOM when allocating tensor with shape[64,512] and type float on /device:CPU:0 by allocator cpu"
    assert message in reason(MemoryError(GRAPH.replace("Received a label value of 5", message)))
