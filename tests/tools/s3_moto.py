#!/usr/bin/env python3
"""Runs object_store_check against moto, a fake AWS of another maker.

    python3 -m venv VENV && VENV/bin/pip install 'moto[server,s3]'
    bazel build //tests/tools:object_store_check
    VENV/bin/python tests/tools/s3_moto.py bazel-bin/tests/tools/object_store_check

moto does not check signatures; base/object_store/testing/fake_s3 does. It checks
the form of requests and of XML, and the conditions of writes.
"""

import os
import subprocess
import sys
import urllib.request

from moto.server import ThreadedMotoServer


def main():
  if len(sys.argv) != 2:
    sys.exit('usage: s3_moto.py OBJECT_STORE_CHECK')
  server = ThreadedMotoServer(ip_address='127.0.0.1', port=0)
  server.start()
  try:
    origin = 'http://%s:%d' % server.get_host_and_port()
    urllib.request.urlopen(
        urllib.request.Request(origin + '/bucket', method='PUT'), timeout=30)
    environment = {
        'AWS_ENDPOINT_URL': origin,
        'AWS_ACCESS_KEY_ID': 'AKIDEXAMPLE',
        'AWS_SECRET_ACCESS_KEY': 'secret',
        'PATH': os.environ['PATH'],
    }
    done = subprocess.run([sys.argv[1], 's3://bucket/check'], env=environment,
                          timeout=600, check=False)
  finally:
    server.stop()
  sys.exit(done.returncode)


if __name__ == '__main__':
  main()
