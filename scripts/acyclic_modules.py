"""A contract of import-linter: no modules import each other in a circle.

Imports below ``if TYPE_CHECKING:`` and inside functions count. The contract looks at modules, not
at packages: two packages may use each other's modules as long as no chain of imports returns to its
start.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class AcyclicModules(Contract):
    type_name = "acyclic_modules"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        imported = {
            module: sorted(graph.find_modules_directly_imported_by(module))
            for module in sorted(graph.modules)
        }
        try:
            TopologicalSorter(imported).prepare()
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"circle": error.args[1]})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error("Each of these modules is imported by the next one:")
        for module in check.metadata["circle"]:
            output.indent_cursor()
            output.print_error(module)
