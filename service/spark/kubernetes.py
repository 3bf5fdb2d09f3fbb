"""Executors in pods of a Kubernetes cluster. The driver is this process, whether it runs in a pod or not.

Spark requests pods from the cluster, and waits silently and indefinitely for pods that it does not get. So `check`
tests Spark's requests beforehand, with the same client and settings. While Spark waits for pods, `ails` reports what
keeps them from running. Neither function leaves anything in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.spark.errors import SparkStartError, first_line

_SCHEME = "k8s://"
_PORTS = {"https": 443, "http": 80}
_NAMESPACE, _USUAL = "spark.kubernetes.namespace", "default"
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_DRIVER = "spark.kubernetes.driver.pod.name"
_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
_BAD_CREDENTIALS, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_ON_ITS_WAY = {"ContainerCreating", "PodInitializing"}

SETTINGS = {
    # Spark replaces spark.driver.host with the address on which the driver listens. If that is 0.0.0.0, executors use
    # it as the driver's address (SPARK-58748).
    "spark.kubernetes.executor.useDriverPodIP": "false",
    # Executors get their settings from the driver. A driver that Spark did not start in a pod creates none of these
    # objects, so it needs no permission to create or remove them.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    # Spark gives up after a number of lost executors. A job that runs for months loses some over time.
    "spark.executor.failuresValidityInterval": "1h",
}


def is_kubernetes(master: str) -> bool:
    """Return whether executors run in Kubernetes pods."""
    return master.startswith(_SCHEME)


def address(master: str) -> str:
    """Return the URL of the API server, with its port."""
    url = master.removeprefix(_SCHEME)
    parts = urlsplit(url if "://" in url else f"https://{url}")
    return f"{parts.scheme}://{parts.netloc}" + ("" if parts.port else f":{_PORTS[parts.scheme]}")


def check(jvm: Any, master: str) -> None:
    """Check that the cluster allows this driver to start executors. Raises SparkStartError.

    Call this function before there is a session, because only the settings from the driver's files count.
    """
    conf = jvm.org.apache.spark.SparkConf()
    if not any(conf.contains(name) for name in _IMAGES):
        raise SparkStartError(
            f"executors have no image: set {_IMAGES[1]} in spark-defaults.conf, in the folder SPARK_CONF_DIR. "
            "Preferably, use the driver's image."
        )
    namespace = conf.get(_NAMESPACE, _USUAL)
    try:
        with _client(jvm, conf, master) as client:
            missing = [verb for verb in _VERBS if not _may(jvm, client, namespace, verb)]
            if missing:
                raise SparkStartError(
                    f"Kubernetes does not allow this driver to {', '.join(missing)} pods in the namespace {namespace}: "
                    f"give its service account a Role in this namespace with pods: [{', '.join(_VERBS)}], or set "
                    f"{_NAMESPACE}."
                )
            if (refusal := _refusal(jvm, client, conf)) and refusal[0] == _NOT_FOUND:
                raise SparkStartError(f"Kubernetes cannot place the executors: {refusal[1]}; set {_NAMESPACE}.")
            pod = conf.get(_DRIVER, "")
            if pod and client.pods().inNamespace(namespace).withName(pod).get() is None:
                raise SparkStartError(f"there is no pod {pod} in the namespace {namespace}: correct {_DRIVER}.")
    except Py4JJavaError as error:
        raise SparkStartError(f"Spark cannot use Kubernetes at {master}: {_why(error)}") from None


def ails(spark: SparkSession) -> str:
    """Return what keeps executors from running, according to the cluster, or "" if the cluster reports nothing."""
    context: Any = spark.sparkContext
    jvm, conf = context._jvm, context._jsc.sc().conf()  # noqa: SLF001 -- there is no other way to Spark's client
    namespace = conf.get(_NAMESPACE, _USUAL)
    found: list[str] = []
    with suppress(Py4JError), _client(jvm, conf, context.master) as client:
        pods = client.pods().inNamespace(namespace).withLabel("spark-app-selector", context.applicationId)
        listed = pods.withLabel("spark-role", "executor").list().getItems()
        for pod in listed:
            found += _reasons(pod.getStatus())
        if not found and not listed and (refusal := _refusal(jvm, client, conf)):
            found.append(refusal[1])
    return found[0] if found else ""


def _reasons(status: Any) -> Iterator[str]:
    """Yield the reasons why a pod with this status is not running, or exited early."""
    for condition in status.getConditions():
        if condition.getType() == "PodScheduled" and condition.getStatus() == "False":
            yield f"no node for a pod: {condition.getMessage()}"
    for container in status.getContainerStatuses():
        waiting, ended = container.getState().getWaiting(), container.getState().getTerminated()
        if waiting is not None and waiting.getReason() not in _ON_ITS_WAY:
            yield _line(f"a pod cannot start, {waiting.getReason()}", waiting.getMessage())
        if ended is not None:
            yield _line(f"a pod exited with code {ended.getExitCode()}, {ended.getReason()}", ended.getMessage())


def _line(what: str, message: str | None) -> str:
    """Return a line with `what` and the last line of a container's `message`."""
    last = (message or "").strip().rpartition("\n")[2]
    return f"{what}: {last}" if last else what


def _may(jvm: Any, client: Any, namespace: str, verb: str) -> bool:
    """Return whether the cluster allows this driver to perform the operation `verb` on pods."""
    review = jvm.io.fabric8.kubernetes.api.model.authorization.v1.SelfSubjectAccessReviewBuilder()
    asked = review.withNewSpec().withNewResourceAttributes().withNamespace(namespace).withVerb(verb)
    whole = asked.withResource("pods").endResourceAttributes().endSpec().build()
    return bool(client.authorization().v1().selfSubjectAccessReview().create(whole).getStatus().getAllowed())


def _refusal(jvm: Any, client: Any, conf: Any) -> tuple[int, str] | None:
    """Request an executor's pod in a dry run. Return the code and reason if the cluster refuses the pod, or else None.

    The requested pod lacks the parts that Spark adds.
    """
    kubernetes = jvm.org.apache.spark.deploy.k8s
    template = conf.get("spark.kubernetes.executor.podTemplateFile", "")
    image = next(conf.get(name) for name in _IMAGES if conf.contains(name))
    if template:
        chosen = jvm.scala.Option.apply(conf.get("spark.kubernetes.executor.podTemplateContainerName", None))
        parts = kubernetes.KubernetesUtils.loadPodFromTemplate(client, template, chosen, conf)
    else:
        parts = kubernetes.SparkPod.initialPod()
    model = jvm.io.fabric8.kubernetes.api.model
    container = model.ContainerBuilder(parts.container()).withName("executor").withImage(image).build()
    pod = model.PodBuilder(parts.pod()).editOrNewMetadata().withGenerateName("rowkind-").endMetadata()
    whole = pod.editOrNewSpec().addAllToContainers([container]).endSpec().build()
    try:
        client.pods().inNamespace(conf.get(_NAMESPACE, _USUAL)).resource(whole).dryRun().create()
    except Py4JJavaError as error:
        if _code(error) in {_FORBIDDEN, _NOT_FOUND}:
            return _code(error), _said(error)
        raise
    return None


@contextmanager
def _client(jvm: Any, conf: Any, master: str) -> Iterator[Any]:
    """Yield a Kubernetes client, created as Spark's driver creates it in this mode."""
    kubernetes = jvm.org.apache.spark.deploy.k8s
    kind = getattr(getattr(kubernetes, "SparkKubernetesClientFactory$ClientType$"), "MODULE$").Driver()
    namespace, nothing = jvm.scala.Option.apply(conf.get(_NAMESPACE, _USUAL)), jvm.scala.Option.empty()
    create = kubernetes.SparkKubernetesClientFactory.createKubernetesClient
    client = create(address(master), namespace, "spark.kubernetes.authenticate", kind, conf, nothing)
    try:
        yield client
    finally:
        client.close()


def _code(error: Py4JJavaError) -> int:
    """Return the API server's status code, or 0 for any other error."""
    java: Any = error.java_exception
    return int(java.getCode()) if java.getClass().getSimpleName() == "KubernetesClientException" else 0


def _said(error: Py4JJavaError) -> str:
    """Return the API server's message."""
    status = error.java_exception.getStatus()
    return str(status.getMessage()) if status is not None else first_line(error)


def _why(error: Py4JJavaError) -> str:
    """Return why the API server gave no usable answer, and the remedy."""
    causes: list[Any] = []
    cause = error.java_exception
    while cause is not None:
        causes.append(cause)
        cause = cause.getCause()
    if _code(error) == _BAD_CREDENTIALS:
        return (
            "it does not accept the credentials (401): check KUBECONFIG, or set "
            "spark.kubernetes.authenticate.oauthTokenFile or clientCertFile and clientKeyFile."
        )
    if any("SSL" in each.getClass().getSimpleName() for each in causes):
        return (
            f"its certificate is not trusted ({causes[-1].getMessage()}): set spark.kubernetes.authenticate.caCertFile."
        )
    return f"{first_line(error)}."
