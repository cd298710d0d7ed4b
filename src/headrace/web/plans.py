"""Plans of changes: shown first, executed after a confirmation, and logged."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from headrace.client.errors import ClientError
from headrace.log_lines import get_logger

from .limits import MAX_PLANS, PLAN_S
from .views import Change

log = get_logger("headrace.ui")


@dataclass(slots=True)
class Plan:
    """An action that is ready to be executed.

    :ivar title: a sentence, in the imperative
    :ivar execute: makes the change, and returns a sentence about it
    :ivar cautions: warnings about the change, one line each
    :ivar action: its name
    :ivar back: the address of the page to return to
    """

    title: str
    changes: Sequence[Change]
    execute: Callable[[], Awaitable[str]] = field(repr=False)
    cautions: Sequence[str] = ()
    action: str = ""
    back: str = "/"


class Plans:
    """The plans that wait for confirmation.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._waiting: OrderedDict[str, tuple[str, float, Plan]] = OrderedDict()

    def keep(self, user: str, plan: Plan) -> str:
        """Keep a plan until it is confirmed, and return its id."""
        while len(self._waiting) >= MAX_PLANS:
            self._waiting.popitem(last=False)
        plan_id = secrets.token_urlsafe(24)
        self._waiting[plan_id] = (user, self._clock_s() + PLAN_S, plan)
        return plan_id

    def take(self, user: str, plan_id: str) -> Plan | None:
        """Remove and return a plan of a user; None if there is none, or it has expired."""
        owner, until_s, plan = self._waiting.get(plan_id, ("", 0.0, None))
        if plan is None or owner != user:
            return None
        del self._waiting[plan_id]
        return plan if self._clock_s() < until_s else None

    async def execute(self, user: str, host: str, plan: Plan) -> str:
        """Execute a plan, and log it.

        :param host: the address of the user
        :returns: a sentence about it
        :raises ClientError: the cluster refuses or does not answer
        """
        log_line(user, host, f"has begun {plan.action}", plan.title)
        outcome, error = "", None
        try:
            outcome = await plan.execute()
        except (ClientError, KafkaException) as failure:
            error = str(failure)
            raise ClientError(error) from failure
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            deed = "has done" if error is None else "has failed in"
            log_line(user, host, f"{deed} {plan.action}", f"{plan.title}: {error or outcome}")
        return outcome


def log_line(user: str, host: str, deed: str, detail: str = "") -> None:
    """Log what a user of the page has done; in the form of the broker's log of changes."""
    log.info("User %s %s from host %s%s", user, deed, host, f": {detail}" if detail else "")
