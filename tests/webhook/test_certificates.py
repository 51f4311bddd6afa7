"""The certificate is looked at before anything is served, and again while it is."""

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from scheduler.webhook.certificates import CertificateError, Certificates
from tests.webhook.pods import pod, review
from tests.webhook.serving import issue, served, service


def test_a_file_that_is_not_set_is_told(tmp_path: Path) -> None:
    """The message names the setting, and the way to do without."""
    cert, key, _ = issue(tmp_path)
    with pytest.raises(CertificateError, match="ESG_TLS_CERT is not set"):
        Certificates(None, key)
    with pytest.raises(CertificateError, match=r"ESG_TLS_KEY is not set.*unset ESG_WEBHOOK_PORT"):
        Certificates(cert, None)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """The message names the file and what the system says of it."""
    cert, key, _ = issue(tmp_path)
    with pytest.raises(CertificateError, match=r"absent\.pem: No such file"):
        Certificates(tmp_path / "absent.pem", key)
    with pytest.raises(CertificateError, match=f"{tmp_path}: Is a directory"):
        Certificates(cert, tmp_path)


def test_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """A key of another certificate, or no PEM at all."""
    cert, _, _ = issue(tmp_path / "a")
    _, other, _ = issue(tmp_path / "b")
    with pytest.raises(CertificateError, match="no PEM certificate chain and its unencrypted key"):
        Certificates(cert, other)
    other.write_text("nothing")
    with pytest.raises(CertificateError, match="no PEM certificate chain and its unencrypted key"):
        Certificates(cert, other)


def test_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    """A look that finds nothing new does nothing."""
    cert, key, _ = issue(tmp_path)
    assert not Certificates(cert, key).renew()


def test_half_a_renewal_is_not_served(tmp_path: Path) -> None:
    """While the new key is not there yet the old pair is kept; both together are taken up."""
    cert, key, _ = issue(tmp_path / "old")
    new_cert, new_key, _ = issue(tmp_path / "new")
    certificates = Certificates(cert, key)
    shutil.copy(new_cert, cert)
    assert not certificates.renew()
    shutil.copy(new_key, key)
    assert certificates.renew()
    key.unlink()
    assert not certificates.renew()


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """As the kubelet does it: the folder that a link names changes, with both files in it."""
    old_cert, old_key, trusts_old = issue(tmp_path / "old")
    _, _, trusts_new = issue(tmp_path / "new")
    link = tmp_path / "current"
    link.symlink_to(old_cert.parent)
    made = service(link / old_cert.name, link / old_key.name)
    async with served(made) as webhook:
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        async with httpx.AsyncClient(verify=trusts_old) as client:
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
            following = asyncio.create_task(webhook.certificates.follow(every_s=0.01))
            link.unlink()
            link.symlink_to(tmp_path / "new")
            await asyncio.sleep(0.2)
            following.cancel()
            # A connection that is open goes on; new ones see the new certificate.
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
        async with httpx.AsyncClient(verify=trusts_new) as client:
            assert (await client.post(url, json=review(pod(labels={})))).status_code == 200
        async with httpx.AsyncClient(verify=trusts_old) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.post(url, json=review(pod(labels={})))
