"""Certificates are validated at start, and reloaded while they are served."""

import asyncio
import shutil

import httpx
import pytest

from scheduler.server.certificates import CertificateError, Certificates
from tests.waiting import until
from tests.webhook.factories import pod, review
from tests.webhook.harness import issue, running_webhook, service


def test_unset_file_is_an_error(tmp_path):
    """The message names the setting."""
    cert, key, _ = issue(tmp_path)
    with pytest.raises(CertificateError, match="ESG_TLS_CERT is not set"):
        Certificates(None, key)
    with pytest.raises(CertificateError, match="ESG_TLS_KEY is not set"):
        Certificates(cert, None)


def test_unreadable_file_is_an_error(tmp_path):
    """The message names the file and the system's error."""
    cert, key, _ = issue(tmp_path)
    with pytest.raises(CertificateError, match=r"absent\.pem: No such file"):
        Certificates(tmp_path / "absent.pem", key)
    with pytest.raises(CertificateError, match=f"{tmp_path}: Is a directory"):
        Certificates(cert, tmp_path)


def test_mismatching_files_are_an_error(tmp_path):
    """The key is that of another certificate, or not PEM."""
    cert, _, _ = issue(tmp_path / "a")
    _, wrong_key, _ = issue(tmp_path / "b")
    message = "not a PEM certificate chain and its unencrypted key"
    with pytest.raises(CertificateError, match=message):
        Certificates(cert, wrong_key)
    wrong_key.write_text("nothing")
    with pytest.raises(CertificateError, match=message):
        Certificates(cert, wrong_key)


def test_unchanged_files_are_not_reloaded(tmp_path):
    """A check without changes returns false."""
    cert, key, _ = issue(tmp_path)
    assert not Certificates(cert, key).renew()


def test_partial_renewal_is_not_served(tmp_path):
    """Until the new key is there the old pair is served; then both are loaded together."""
    cert, key, _ = issue(tmp_path / "old")
    new_cert, new_key, _ = issue(tmp_path / "new")
    certificates = Certificates(cert, key)
    shutil.copy(new_cert, cert)
    assert not certificates.renew()
    shutil.copy(new_key, key)
    assert certificates.renew()
    key.unlink()
    assert not certificates.renew()


async def test_renewed_certificate_is_served_without_a_restart(tmp_path, logged):
    """The kubelet renews by a link to a new folder with both files."""
    old_cert, old_key, trusts_old = issue(tmp_path / "old")
    _, _, trusts_new = issue(tmp_path / "new")
    link = tmp_path / "current"
    link.symlink_to(old_cert.parent)
    webhook_service = service(link / old_cert.name, link / old_key.name)
    async with running_webhook(webhook_service) as webhook:
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        async with httpx.AsyncClient(verify=trusts_old) as client:
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
            following = asyncio.create_task(webhook.certificates.follow(every_s=0.01))
            link.unlink()
            link.symlink_to(tmp_path / "new")
            await until(lambda: any(entry["event"] == "certificate renewed" for entry in logged))
            following.cancel()
            # An open connection stays usable; new connections get the new certificate.
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
        async with httpx.AsyncClient(verify=trusts_new) as client:
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
        async with httpx.AsyncClient(verify=trusts_old) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.post(url, json=review(pod(labels={})))
