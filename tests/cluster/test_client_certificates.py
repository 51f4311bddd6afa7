"""A client certificate that is renewed on disk is used for new connections, without a restart."""

import shutil
import ssl

from aiohttp import web

from scheduler.cluster.api import connect
from tests.cluster.factories import kubeconfig_for
from tests.testbed.pki import Authority


async def who_am_i(api):
    """Return the name that the server reads from the client certificate."""
    return str((await api.get("/who"))["name"])


async def test_renewed(tmp_path):
    """After a renewal on disk, the next new connection uses the new certificate."""
    authority = Authority(tmp_path)
    serving = authority.server("server", ("localhost",))
    shown = authority.client("shown", "first")
    server_context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate)
    )
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_cert_chain(str(serving.certificate), str(serving.key))

    async def who(request):
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        name = {key: value for ((key, value),) in certificate["subject"]}["commonName"]
        answer = web.json_response({"name": name})
        answer.force_close()
        return answer

    app = web.Application()
    app.router.add_get("/who", who)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context).start()
    user = {"client-certificate": str(shown.certificate), "client-key": str(shown.key)}
    path = kubeconfig_for(
        f"https://127.0.0.1:{runner.addresses[0][1]}", tmp_path, user, ca=authority.certificate
    )
    try:
        async with connect(path) as api:
            first = await who_am_i(api)
            second = authority.client("second", "second")
            shown.certificate.write_text("half written", encoding="ascii")
            while_written = await who_am_i(api)
            shutil.copy(second.key, shown.key)
            shutil.copy(second.certificate, shown.certificate)
            renewed = await who_am_i(api)
    finally:
        await runner.cleanup()

    assert (first, while_written, renewed) == ("first", "first", "second")
