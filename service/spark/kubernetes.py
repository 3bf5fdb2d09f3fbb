"""Executors as pods of a Kubernetes cluster, and the driver where this process is, in a pod or not.

Spark itself asks the cluster for the pods, and waits for ever for those that it does not get, without a word. So
what it asks for is looked at before, by the same client with the same settings (`check`), and what keeps pods from
running is told while they are awaited (`ails`). Neither leaves anything in the cluster.
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
    # Spark puts the address that the driver listens at in the place of spark.driver.host, and if that is 0.0.0.0
    # executors look for it there (SPARK-58748).
    "spark.kubernetes.executor.useDriverPodIP": "false",
    # Executors have their settings from the driver. Of these things a driver that is no pod of Spark's own makes none,
    # and so needs no right to make or to remove them.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    # Spark gives up when it has lost so many executors. A job runs for months, and loses some in the course of them.
    "spark.executor.failuresValidityInterval": "1h",
}


def is_kubernetes(master: str) -> bool:
    """Whether executors are pods."""
    return master.startswith(_SCHEME)


def address(master: str) -> str:
    """The URL of the API server, with its port."""
    url = master.removeprefix(_SCHEME)
    parts = urlsplit(url if "://" in url else f"https://{url}")
    return f"{parts.scheme}://{parts.netloc}" + ("" if parts.port else f":{_PORTS[parts.scheme]}")


def check(jvm: Any, master: str) -> None:
    """Find out whether the cluster will let a driver have executors there. Raises SparkStartError.

    To be called before there is a session: it is Spark's settings as they come of the driver's files that count.
    """
    conf = jvm.org.apache.spark.SparkConf()
    if not any(conf.contains(name) for name in _IMAGES):
        raise SparkStartError(
            f"executors have no image: set {_IMAGES[1]} in spark-defaults.conf, where SPARK_CONF_DIR points, best to "
            "the image that runs the driver."
        )
    namespace = conf.get(_NAMESPACE, _USUAL)
    try:
        with _client(jvm, conf, master) as client:
            missing = [verb for verb in _VERBS if not _may(jvm, client, namespace, verb)]
            if missing:
                raise SparkStartError(
                    f"Kubernetes does not let this driver {', '.join(missing)} pods in the namespace {namespace}: give "
                    f"its service account a Role there with pods: [{', '.join(_VERBS)}], or set {_NAMESPACE}."
                )
            if (refusal := _refusal(jvm, client, conf)) and refusal[0] == _NOT_FOUND:
                raise SparkStartError(f"Kubernetes has no such place for executors: {refusal[1]}; set {_NAMESPACE}.")
            pod = conf.get(_DRIVER, "")
            if pod and client.pods().inNamespace(namespace).withName(pod).get() is None:
                raise SparkStartError(f"there is no pod {pod} in the namespace {namespace}: correct {_DRIVER}.")
    except Py4JJavaError as error:
        raise SparkStartError(f"Spark cannot use Kubernetes at {master}: {_why(error)}") from None


def ails(spark: SparkSession) -> str:
    """What keeps executors from running, as far as the cluster tells; empty if nothing does, or nobody knows."""
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
    """Why a pod with this status does not run, or did not for long."""
    for condition in status.getConditions():
        if condition.getType() == "PodScheduled" and condition.getStatus() == "False":
            yield f"a pod has no node: {condition.getMessage()}"
    for container in status.getContainerStatuses():
        waiting, ended = container.getState().getWaiting(), container.getState().getTerminated()
        if waiting is not None and waiting.getReason() not in _ON_ITS_WAY:
            yield _line(f"a pod cannot start, {waiting.getReason()}", waiting.getMessage())
        if ended is not None:
            yield _line(f"a pod ended with code {ended.getExitCode()}, {ended.getReason()}", ended.getMessage())


def _line(what: str, message: str | None) -> str:
    """Both in one line, of what a container has said its last one."""
    last = (message or "").strip().rpartition("\n")[2]
    return f"{what}: {last}" if last else what


def _may(jvm: Any, client: Any, namespace: str, verb: str) -> bool:
    """Whether the cluster lets us do that with pods."""
    review = jvm.io.fabric8.kubernetes.api.model.authorization.v1.SelfSubjectAccessReviewBuilder()
    asked = review.withNewSpec().withNewResourceAttributes().withNamespace(namespace).withVerb(verb)
    whole = asked.withResource("pods").endResourceAttributes().endSpec().build()
    return bool(client.authorization().v1().selfSubjectAccessReview().create(whole).getStatus().getAllowed())


def _refusal(jvm: Any, client: Any, conf: Any) -> tuple[int, str] | None:
    """Code and reason with which the cluster would refuse a pod as executors are to be, but for what Spark adds."""
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
    """Spark's client, as its driver has it in this mode."""
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
    """The status that the API server gave, 0 if it is another error."""
    java: Any = error.java_exception
    return int(java.getCode()) if java.getClass().getSimpleName() == "KubernetesClientException" else 0


def _said(error: Py4JJavaError) -> str:
    """What the API server said."""
    status = error.java_exception.getStatus()
    return str(status.getMessage()) if status is not None else first_line(error)


def _why(error: Py4JJavaError) -> str:
    """Why the API server gave no answer that is of use, and what to do about it."""
    causes: list[Any] = []
    cause = error.java_exception
    while cause is not None:
        causes.append(cause)
        cause = cause.getCause()
    if _code(error) == _BAD_CREDENTIALS:
        return (
            "it does not know who asks (401): check KUBECONFIG, or set spark.kubernetes.authenticate.oauthTokenFile or "
            "clientCertFile and clientKeyFile."
        )
    if any("SSL" in each.getClass().getSimpleName() for each in causes):
        return (
            f"its certificate is not trusted ({causes[-1].getMessage()}): set spark.kubernetes.authenticate.caCertFile."
        )
    return f"{first_line(error)}."
