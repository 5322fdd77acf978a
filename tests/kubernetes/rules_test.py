"""Plants each fault in manifests that have none, and sees its rule find it."""

import os
import sys
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import chart  # pylint: disable=wrong-import-position
import faults  # pylint: disable=wrong-import-position
import matrix  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position

# With all that the quickstart lacks.
_MORE = dict(matrix.gate('LoadBalancer'),
             metrics={'serviceMonitor': {'enabled': True}},
             data=matrix.BY_URL, run={'preset': 'laptop', 'file': ''})
del _MORE['islands']  # The quickstart's islands stay.


def quickstart():
  return chart.render('quickstart.yaml', values=_MORE)


class FaultsTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.helps = chart.helps()

  def rules_that_find(self, documents):
    return {v.rule for v in rules.check(documents, self.helps, matrix.GIVEN)}

  def test_without_a_fault_no_rule_finds_one(self):
    self.assertEqual([], rules.check(quickstart(), self.helps, matrix.GIVEN))

  def test_each_rule_has_a_fault(self):
    self.assertEqual({rule.__name__ for rule in rules.ALL},
                     {rule for rule, _ in faults.FAULTS})

  def test_fields_that_may_not_change_are_found(self):
    before, after = quickstart(), quickstart()
    self.assertEqual([], list(rules.unchangeable(before, after)))
    server = faults.document(after, 'StatefulSet', 'atoll-server')
    server['spec']['serviceName'] = 'atoll-servers'
    run = faults.document(after, 'Job', 'atoll-run')
    run['spec']['template']['spec']['containers'][0]['image'] = 'atoll:2'
    self.assertEqual(2, len(list(rules.unchangeable(before, after))))


def _add(rule, fault):

  def test(self):
    documents = quickstart()
    fault(documents)
    self.assertIn(rule, self.rules_that_find(documents))

  setattr(FaultsTest, 'test_%s_finds_%s' % (rule, fault.__name__), test)


for _rule, _fault in faults.FAULTS:
  _add(_rule, _fault)

if __name__ == '__main__':
  cases.main()
