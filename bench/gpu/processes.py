"""Processes that the suite asks, each by lines of JSON and answered with one."""
import json
import os
import select
import signal
import subprocess
import time

#: How long what was killed is waited for: where nobody reaps orphans, they stay in their group for good.
KILLED_SECONDS = 5


class Timeout(Exception):
    pass


class Server:
    """A process that is asked and answers; one that is stuck is ended, and started anew for the next question."""

    def __init__(self, command, log, environment, folder):
        self.command, self.log, self.environment, self.folder = [str(word) for word in command], log, environment, folder
        self.process = None
        self.is_closed = False

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        env=self.environment, cwd=self.folder, start_new_session=True)

    def ask(self, request, seconds):
        """@return the answer, or an `error`. @raises Timeout"""
        if seconds <= 0 or self.is_closed:
            raise Timeout("no time is left")
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write((json.dumps(request) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            return {"error": "the process ended; see log.txt"}
        return self.reply(seconds)

    def reply(self, seconds):
        """A line of JSON; other lines are what libraries print. @raises Timeout"""
        end, process = time.monotonic() + seconds, self.process
        while True:
            ready = select.select([process.stdout], [], [], max(end - time.monotonic(), 0))[0]
            if not ready:
                self.stop()
                raise Timeout(f"no answer in {seconds:.0f} s")
            line = process.stdout.readline().decode(errors="replace")
            if not line:
                self.stop()
                return {"error": "the process ended; see log.txt"}
            if line.startswith("{"):
                return json.loads(line)

    def stop(self):
        process, self.process = self.process, None
        if process is not None:
            end_session(process)
            process.stdin.close()

    def close(self):
        """For good, whoever is asking it."""
        self.is_closed = True
        self.stop()


def end_session(process):
    """Ends a session by its leader, with all that it started, a compiler say: on return none of them writes a file."""
    end = time.monotonic() + KILLED_SECONDS
    try:
        while time.monotonic() < end:
            os.killpg(process.pid, signal.SIGKILL)
            process.poll()  # until it is waited for, the group has a member
            time.sleep(0.01)
    except ProcessLookupError:
        pass
    process.wait()
