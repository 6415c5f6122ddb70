"""Programs with a probe inside, in each Python that engines run on: they do their own work, whatever it meets."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.probe.programs import popen, run
from tests.probe.said import REPORTING, WAITING, awaited, files, of_pid, said

ENGINE = """
import torch.cuda
torch.cuda.init(torch.cuda.statistics(active=5, reserved=9))
"""


def test_a_program_goes_on_and_its_file_goes_with_it(python: str, folder: Path) -> None:
    """Started twice, as engines load their plugins; at the end there is no file and not a word on stderr."""
    text = """
vramscope_probe.start(); vramscope_probe.start()
until(has_file)
import torch.cuda
torch.cuda.init(torch.cuda.statistics(active=5, reserved=9))
until(lambda: state() == 1)
import threading
print([thread.name for thread in threading.enumerate()], sum(range(1000)), torch.cuda.asked.count("mem_get_info"))
"""
    printed = run(python, text, folder)

    assert printed == "['MainThread', 'vramscope-probe'] 499500 0\n"
    assert files(folder) == []


def test_children_that_are_forked_have_files_of_their_own(python: str, folder: Path) -> None:
    """With their own pid, waiting: CUDA of the parent is not theirs."""
    text = f"""{ENGINE}
vramscope_probe.start()
until(lambda: state() == 1)
with vramscope_probe._lock:  # another thread may hold it at that moment
    pid = os.fork()
if pid == 0:
    vramscope_probe.start()
    until(has_file)
    os._exit(state() + 40)
print(os.waitpid(pid, 0)[1] >> 8, state())
"""
    assert run(python, text, folder) == f"{WAITING + 40} {REPORTING}\n"
    (left,) = files(folder)  # of the child, which ended without a word
    assert said(left).state == WAITING


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_of_every_start_method(python: str, folder: Path, method: str) -> None:
    """A pool of workers, each with a probe that its parent's start or its own gives it; results and exits are right."""
    text = f"""
import multiprocessing
def work(number):
    vramscope_probe.start()
    import torch.cuda
    torch.cuda.init(torch.cuda.statistics(active=number, reserved=number))
    until(lambda: state() == 1)
    return number * number
if __name__ == "__main__":
    vramscope_probe.start()
    until(has_file)
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(pool.map(work, [3, 4, 5]))
        pool.close()
        pool.join()
"""
    assert run(python, text, folder) == "[9, 16, 25]\n"


def test_a_child_that_runs_another_program_leaves_no_file(folder: Path) -> None:
    """Between fork and exec nothing is written."""
    text = """
vramscope_probe.start()
until(has_file)
pid = os.fork()
if pid == 0:
    os.execv("/bin/sh", ["sh", "-c", "exit 7"])
print(os.waitpid(pid, 0)[1] >> 8)
"""
    assert run(sys.executable, text, folder, VRAMSCOPE_PROBE_INTERVAL="5") == "7\n"
    assert files(folder) == []


@pytest.mark.parametrize(("end", "code"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)])
def test_a_sudden_end_is_the_programs_own_and_the_next_one_sweeps(folder: Path, end: str, code: int) -> None:
    """What it leaves is whole and names a process that is gone; the next probe takes it away."""
    text = f"{ENGINE}vramscope_probe.start()\nuntil(lambda: state() == 1)\n{end}"
    with popen(sys.executable, text, folder) as it:
        it.communicate(timeout=60)
    left = of_pid(folder, it.pid)
    assert (it.returncode, said(left).pid) == (code, it.pid)

    run(sys.executable, "vramscope_probe.start(); until(has_file)", folder)

    assert files(folder) == []


def test_signals_stay_with_the_programs_own_threads(folder: Path) -> None:
    """A signal that the program blocks and waits for is not delivered to the probe's thread, where it would kill."""
    text = """
vramscope_probe.start()
until(has_file)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
for number in (signal.SIGTERM, signal.SIGUSR1):
    os.kill(os.getpid(), number)
    print(signal.sigtimedwait({number}, 10).si_signo)
"""
    assert run(sys.executable, text, folder) == f"{int(signal.SIGTERM)}\n{int(signal.SIGUSR1)}\n"


def test_threads_that_are_none_leave_the_programs_signals_alone(folder: Path) -> None:
    """Where a library makes threads run in the one that starts them (gevent does), the probe says so and is silent."""
    text = """
import threading
threading.Thread.start = lambda self: self.run()
vramscope_probe.start()
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), state())
"""
    assert run(sys.executable, text, folder) == "set() 2\n"


def test_a_child_forked_while_another_thread_starts_the_probe_does_not_hang(folder: Path) -> None:
    """The lock that the other thread held is held for ever in the child: it goes on without a probe."""
    text = """
vramscope_probe._lock.acquire()
child = os.fork()
if child == 0:
    signal.alarm(10)
    vramscope_probe.start()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert run(sys.executable, text, folder) == "0\n"


@pytest.mark.parametrize("value", ["off", " OFF ", "0"])
def test_off(folder: Path, value: str) -> None:
    """Nothing of it runs."""
    text = "import threading; vramscope_probe.start(); time.sleep(0.3); print(threading.active_count())"

    assert run(sys.executable, text, folder, VRAMSCOPE_PROBE=value) == "1\n"
    assert not folder.exists()


def test_without_threads_nothing_happens(folder: Path) -> None:
    """Whatever is odd about the host, the program goes on."""
    text = """
import threading
threading.Thread.start = lambda self: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
vramscope_probe.start(); vramscope_probe.start()
print("goes on")
"""
    assert run(sys.executable, text, folder) == "goes on\n"
    assert files(folder) == []


def test_the_start_is_quick_and_waits_for_nothing(folder: Path) -> None:
    """Also where the directory cannot be reached: a fifo that nobody writes stands in its place."""
    os.mkfifo(folder)
    text = "vramscope_probe.start(); time.sleep(0.3); print('goes on')"

    assert run(sys.executable, text, folder) == "goes on\n"


def test_a_paused_program_is_not_swept_by_its_neighbour(folder: Path) -> None:
    """It lives; its file stays, as old as it is."""
    with popen(sys.executable, f"{ENGINE}vramscope_probe.start()\ntime.sleep(60)", folder) as paused:
        awaited(of_pid(folder, paused.pid), lambda one: one.state == REPORTING)
        paused.send_signal(signal.SIGSTOP)
        run(sys.executable, "vramscope_probe.start(); until(has_file)", folder)
        left = files(folder)
        paused.kill()
        paused.communicate(timeout=60)

    assert of_pid(folder, paused.pid) in left
