"""Commands of ``esg`` that run on a desk: their names.

The modules ``*_options`` have their options and help. A command imports the module that carries it
out when it runs, so that help is quick.
"""

import typer

from workbench.commands.calibrate_options import calibrate
from workbench.commands.demo_options import demo
from workbench.commands.document_options import reference, samples
from workbench.commands.local_options import local
from workbench.commands.measure_options import measure
from workbench.commands.profile_options import import_profiles, plan, refresh, show
from workbench.commands.simulate_options import simulate

_PANEL = "On a desk"

app = typer.Typer()
profiles_app = typer.Typer(
    help="Measure, import, correct and show FunctionProfiles.", no_args_is_help=True
)
profiles_app.command("measure")(measure)
profiles_app.command("import")(import_profiles)
profiles_app.command("refresh")(refresh)
profiles_app.command("show")(show)

for command in (plan, simulate, calibrate, demo, local):
    app.command(rich_help_panel=_PANEL)(command)
app.add_typer(profiles_app, name="profiles", rich_help_panel=_PANEL)
for generator in (samples, reference):
    app.command(rich_help_panel=_PANEL)(generator)
