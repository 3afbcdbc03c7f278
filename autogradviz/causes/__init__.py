"""Causes: what each line did to gradients and memory, and the way from a symptom to its cause."""

from autogradviz.causes.audit import Audit as Audit
from autogradviz.causes.audit import AuditEntry as AuditEntry
from autogradviz.causes.audit import audit_entry as audit_entry
from autogradviz.causes.certificate_of_verified_gradients import Certificate as Certificate
from autogradviz.causes.certificate_of_verified_gradients import UnverifiedNode as UnverifiedNode
from autogradviz.causes.choose_findings_among_facts import find_problems as find_problems
from autogradviz.causes.sentence_on_audit import AuditSentence as AuditSentence
from autogradviz.causes.sentence_on_audit import sentence_on_audit as sentence_on_audit
from autogradviz.causes.why import Explanation as Explanation
from autogradviz.causes.why import ExplanationStep as ExplanationStep
from autogradviz.causes.why import explain_target as explain_target
from autogradviz.causes.why import explain_targets as explain_targets
from autogradviz.causes.why import identify_object as identify_object
from autogradviz.diagnose.finding import Mechanism as Mechanism
