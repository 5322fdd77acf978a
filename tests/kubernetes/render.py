#!/usr/bin/python3
"""Writes deploy/kubernetes/quickstart.rendered.yaml anew, by hand."""

import chart

if __name__ == '__main__':
  with open(chart.RENDERED, 'w', encoding='utf-8') as file:
    file.write(chart.quickstart())
