"""A web server of files on loopback, with ranges and faults."""

import hashlib
import http.server
import os
import re
import threading

_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


class FileHost:
    """Serves `directory` at `url`. `fault(target, start, body)` may return another
    body, shorter: the connection is cut after it; or a number: that status."""

    def __init__(self, directory, port=0, fault=None):
        self.served_bytes = 0
        self._target = None
        host = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):  # The library calls it so.
                self._answer(False)

            def do_GET(self):
                self._answer(True)

            def _answer(self, with_body):
                if host._target:
                    self.send_response(302)
                    self.send_header("Location", host._target + self.path)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return None
                path = os.path.join(directory,
                                    self.path.split("?")[0].lstrip("/"))
                try:
                    with open(path, "rb") as file:
                        whole = file.read()
                except OSError:
                    return self._status(404)
                found = _RANGE.match(self.headers.get("Range", ""))
                start = int(found.group(1)) if found else 0
                end = (int(found.group(2)) + 1 if found and found.group(2)
                       else len(whole))
                body = whole[start:end]
                sent = fault(self.path, start, body) if fault else body
                if isinstance(sent, int):
                    return self._status(sent)
                self.send_response(206 if found else 200)
                self.send_header("ETag", '"%s"' %
                                 hashlib.md5(whole).hexdigest())
                self.send_header("Content-Length", str(len(body)))
                if found:
                    self.send_header("Content-Range", "bytes %d-%d/%d" % (
                        start, start + len(body) - 1, len(whole)))
                self.end_headers()
                if with_body:
                    self.wfile.write(sent)
                    host.served_bytes += len(sent)
                    self.close_connection = len(sent) < len(body)
                return None

            def _status(self, code):
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port),
                                                       Handler)
        self._server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def redirected(self, target):
        """Answers with redirects to `target` from now on. Returns its own URL."""
        self._target = target
        return self.url

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
