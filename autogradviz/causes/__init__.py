"""Causes: what each line did to gradients and memory, and the way from a symptom to its cause."""

from autogradviz.causes.audit import ranked_facts as ranked_facts
from autogradviz.causes.entry import Audit as Audit
from autogradviz.causes.entry import AuditEntry as AuditEntry
from autogradviz.causes.entry import Mechanism as Mechanism
from autogradviz.causes.explanation import Explanation as Explanation
from autogradviz.causes.explanation import ExplanationStep as ExplanationStep
from autogradviz.causes.why import explain_target as explain_target
from autogradviz.causes.why import explain_targets as explain_targets
