#!/usr/bin/env python3
"""Writes sigv4_golden.json: requests that botocore signs, and its signatures.

    python3 -m venv VENV && VENV/bin/pip install botocore
    VENV/bin/python base/object_store/testdata/make_sigv4_golden.py

sigv4_test compares our signatures with these. botocore gets each request as a
URL that this script encodes, with the query in the given order.
"""

import datetime
import json
import os
import re
import urllib.parse

import botocore
import botocore.auth
import botocore.awsrequest
import botocore.credentials

_PLAIN = ('AKIDEXAMPLE', 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY', '')
_SESSION = ('ASIAEXAMPLE', 'secret/with+signs=', 'FwoGZXIvYXdzE+/=token==')
_HOST = 'bucket.s3.us-east-1.amazonaws.com'
_PATH_STYLE = 's3.eu-central-1.amazonaws.com'
_TIMES = ('2026-01-02T03:04:05Z', '2013-05-24T00:00:00Z',
          '2028-02-29T23:59:59Z', '1999-12-31T12:00:00Z')


def _case(method, path, query=(), headers=(), body='', host=_HOST,
          region='us-east-1', credentials=_PLAIN, lifetime_s=0):
  return {
      'method': method,
      'host': host,
      'path': path,
      'query': [list(pair) for pair in query],
      'headers': [list(pair) for pair in headers],
      'body': body,
      'region': region,
      'credentials': list(credentials),
      'lifetime_s': lifetime_s,
  }


def _plain_cases():
  keys = [
      '/', '/key', '/a/b/c.bin', '/a//b', '//a', '/a/', '/a/../b/./c',
      '/a b+c', '/%41%zz', '/caf\u00e9/\u65e5\u672c/\U0001f600',
      '/!\'()*;:@&=+$,?#[]', '/-_.~', '/"<>\\^`{|}', '/\u0001\u007f',
      '/' + 'k' * 1000
  ]
  for key in keys:
    yield _case('GET', key)
  yield _case('HEAD', '/key')
  yield _case('DELETE', '/a b')
  yield _case('PUT', '/key', body='hello')
  yield _case('PUT', '/key', body='caf\u00e9\n' * 100)
  yield _case('PUT', '/key', headers=[('If-None-Match', '*')], body='x')
  yield _case('PUT', '/key', headers=[
      ('Content-Type', ' text/plain;  charset=utf-8 '),
      ('x-amz-meta-b', '2'), ('X-Amz-Meta-A', 'a   b\tc')], body='x')
  yield _case('GET', '/key', headers=[('Range', 'bytes=0-99'),
                                      ('If-Match', '"abc"')])


def _query_cases():
  yield _case('POST', '/key', [('uploads', '')])
  yield _case('POST', '/key', [('uploadId', 'a/b+c=')], body='<C></C>')
  yield _case('PUT', '/key', [('uploadId', 'x.y_z~'), ('partNumber', '7')],
              body='part')
  yield _case('DELETE', '/key', [('uploadId', 'abc')])
  yield _case('GET', '/', [('list-type', '2'), ('prefix', 'a/b c/'),
                           ('encoding-type', 'url'), ('max-keys', '1000')])
  yield _case('GET', '/', [('prefix', ''), ('list-type', '2'),
                           ('continuation-token', '1/+abc==&d')])
  yield _case('GET', '/', [('delimiter', '/'), ('list-type', '2'),
                           ('prefix', '\u00e9\u65e5'), ('start-after', '*')])
  yield _case('GET', '/k', [('b', '2'), ('a', '1'), ('c', ''), ('B', '3')])
  yield _case('GET', '/k', [('a', 'z'), ('a', 'A'), ('a', ''), ('a', '/')])
  yield _case('GET', '/k', [('a-b', '1'), ('a', '2'), ('a.b', '3'),
                            ('a%', '4'), ('aB', '5')])
  yield _case('GET', '/k', [('x y', '+'), ('x+y', ' '), ('x&y', '='),
                            ('\u00e9', '%20')])
  yield _case('GET', '/k', [('acl', ''), ('versionId', 'null')])


def _place_cases():
  yield _case('GET', '/bucket/key', host=_PATH_STYLE, region='eu-central-1')
  yield _case('GET', '/bucket//a b', host='127.0.0.1:9000', region='local')
  yield _case('PUT', '/bucket/k', host='minio.example:8443', body='b')
  yield _case('GET', '/bucket/k', host='[::1]:9000')
  yield _case('GET', '/k', credentials=_SESSION)
  yield _case('POST', '/k', [('uploads', '')], credentials=_SESSION,
              headers=[('x-amz-meta-atoll-write-id', '0' * 32)])
  yield _case('PUT', '/k', [('partNumber', '1'), ('uploadId', 'u')],
              body='x' * 5000, credentials=_SESSION, host=_PATH_STYLE,
              region='eu-central-1')


def _presigned_cases():
  for key in ('/key', '/a//b c', '/caf\u00e9+*', '/bucket/a&b=c?d'):
    yield _case('GET', key, lifetime_s=3600)
  yield _case('GET', '/key', lifetime_s=1, credentials=_SESSION)
  yield _case('GET', '/key', lifetime_s=604800, host='127.0.0.1:9000')
  yield _case('GET', '/key', [('versionId', 'a/b+c')], lifetime_s=60)
  yield _case('GET', '/key', [('response-content-type', 'text/plain; x'),
                              ('aa', '')], lifetime_s=60)
  yield _case('PUT', '/key', lifetime_s=900)
  yield _case('HEAD', '/key', lifetime_s=900, credentials=_SESSION,
              host=_PATH_STYLE, region='eu-central-1')


def _quote(text, safe=''):
  return urllib.parse.quote(text, safe=safe + '-_.~')


def _make_url(case):
  # Names without a value are sent as S3's own clients do: "?uploads".
  query = '&'.join(_quote(name) + ('=' + _quote(value) if value else '')
                   for name, value in case['query'])
  url = 'https://' + case['host'] + _quote(case['path'], '/')
  return url + ('?' + query if query else '')


def _sign(case, time):
  botocore.auth.get_current_datetime = lambda: datetime.datetime.strptime(
      time, '%Y-%m-%dT%H:%M:%SZ')
  key, secret, token = case['credentials']
  credentials = botocore.credentials.Credentials(key, secret, token or None)
  request = botocore.awsrequest.AWSRequest(
      method=case['method'], url=_make_url(case), data=case['body'].encode(),
      headers=dict(case['headers']))
  if case['lifetime_s']:
    auth = botocore.auth.S3SigV4QueryAuth(
        credentials, 's3', case['region'], expires=case['lifetime_s'])
    auth.add_auth(request)
    return re.search('X-Amz-Signature=([0-9a-f]+)', request.url).group(1)
  auth = botocore.auth.S3SigV4Auth(credentials, 's3', case['region'])
  auth.add_auth(request)
  return request.headers['Authorization']


def main():
  cases = [*_plain_cases(), *_query_cases(), *_place_cases(),
           *_presigned_cases()]
  for number, case in enumerate(cases):
    case['time'] = _TIMES[number % len(_TIMES)]
    case['want'] = _sign(case, case['time'])
  path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      'sigv4_golden.json')
  with open(path, 'w', encoding='ascii') as file:
    json.dump({'botocore': botocore.__version__, 'cases': cases}, file,
              indent=1)
    file.write('\n')
  print('%d cases' % len(cases))


if __name__ == '__main__':
  main()
