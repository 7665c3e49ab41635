// C# client for games: reconnects automatically and resends unanswered messages. One file without packages, for Unity
// 2021 and later (copy it to Assets), .NET (netstandard2.1 and later) and Mono.
//
//   var client = new Townlet.TownletClient("ws://127.0.0.1:8780/ws", token);
//   string decision = await client.RequestAsync("{\"type\": \"rank_request\", …}");
//   client.Dispose();  // in Unity: in OnDestroy
//
// Messages and answers are JSON texts, since Unity has no JSON library that reads every message: use the one of your
// project, such as JsonUtility (Unity), Newtonsoft.Json (Unity package com.unity.nuget.newtonsoft-json) or
// System.Text.Json (.NET). In Unity, code after `await` runs on the main thread if the call was made there. Builds for
// WebGL have no sockets: use client.js there.
//
// Resending is safe: the same observation gets the same answer, and a report counts once. Answers arrive in the order
// of the messages.

using System;
using System.Collections.Generic;
using System.IO;
using System.Net.WebSockets;
using System.Security.Cryptography;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Townlet
{
    /// <summary>No answer arrived in time. The service may have received the message; it is safe to send it again.</summary>
    public sealed class NoAnswerException : IOException
    {
        public NoAnswerException(string message) : base(message) { }
    }

    /// <summary>A session with a service, over as many connections as needed. All members are thread-safe.</summary>
    public sealed class TownletClient : IDisposable
    {
        private const int MaxUnanswered = 32;  // messages in flight
        private const int MaxWaiting = 1000;  // messages in the queue; further ones are refused
        private const int MaxMessage = 1 << 17;  // bytes; the service closes the connection of a longer one
        private const int MaxAnswer = 1 << 20;  // bytes
        private const int TryAgainLater = 1013;  // close code: too many games
        private static readonly TimeSpan FirstDelay = TimeSpan.FromMilliseconds(50);  // between attempts to connect
        private static readonly TimeSpan MaxDelay = TimeSpan.FromSeconds(5);
        private static readonly TimeSpan ConnectTimeout = TimeSpan.FromSeconds(10);
        private static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);  // refuses what is not UTF-8

        private readonly Uri url;
        private readonly string address, token;
        private readonly TimeSpan timeout;
        private readonly object gate = new object();  // guards the queues
        private readonly LinkedList<Request> waiting = new LinkedList<Request>();  // not sent yet, oldest first
        private readonly Queue<Request> sent = new Queue<Request>();  // sent and not answered
        private readonly SemaphoreSlim wake = new SemaphoreSlim(0);  // there may be something to send
        private readonly CancellationTokenSource stop = new CancellationTokenSource();
        private readonly Random random = new Random();
        private string problem = "";  // why the last connection failed; "" while connected
        private int connections;

        private sealed class Request
        {
            public readonly ArraySegment<byte> Text;
            public readonly TaskCompletionSource<string> Answer =
                new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
            public volatile ClientWebSocket Socket;  // on which it was last sent

            public Request(byte[] text) { Text = new ArraySegment<byte>(text); }

            public bool Done { get { return Answer.Task.IsCompleted; } }
        }

        /// <param name="url">WebSocket address of the service, such as ws://127.0.0.1:8780/ws.</param>
        /// <param name="token">Access token of the role `game`.</param>
        /// <param name="client">Key that owns territories: a game that restarts with the same key keeps them.</param>
        /// <param name="timeout">Time to wait for an answer; a minute by default.</param>
        public TownletClient(string url, string token = null, string client = null, TimeSpan? timeout = null)
        {
            var query = (url.Contains("?") ? "&" : "?") + "client=" + Uri.EscapeDataString(client ?? RandomKey());
            this.url = new Uri(url + query);
            address = url.Split('?')[0];  // for messages: the query may contain a token
            this.token = token;
            this.timeout = timeout ?? TimeSpan.FromMinutes(1);
            Task.Run(StayConnected);
        }

        /// <summary>Number of connections so far.</summary>
        public int Connections { get { return Volatile.Read(ref connections); } }

        /// <summary>Send a message (a JSON text) and return its answer, across reconnects.</summary>
        /// <exception cref="ArgumentException">The message is too long.</exception>
        /// <exception cref="NoAnswerException">No answer arrived in time, or the client was disposed.</exception>
        public async Task<string> RequestAsync(string message)
        {
            var text = Utf8.GetBytes(message);
            if (text.Length > MaxMessage) throw new ArgumentException(TooLong(text.Length));
            var request = new Request(text);
            lock (gate)
            {
                if (stop.IsCancellationRequested) throw new NoAnswerException("the client is closed");
                if (waiting.Count >= MaxWaiting) DropTimedOut(waiting);
                if (waiting.Count >= MaxWaiting) throw new NoAnswerException(MaxWaiting + " messages are waiting; send fewer");
                waiting.AddLast(request);
            }
            wake.Release();
            using (var answered = new CancellationTokenSource())
            {
                var first = await Task.WhenAny(request.Answer.Task, Task.Delay(timeout, answered.Token)).ConfigureAwait(false);
                answered.Cancel();
                if (first != request.Answer.Task && request.Answer.TrySetException(TimedOut()))
                    request.Socket?.Abort();  // a connection without answers is probably dead, so reconnect
            }
            return await request.Answer.Task.ConfigureAwait(false);
        }

        /// <summary>Disconnect; unanswered requests throw NoAnswerException.</summary>
        public void Dispose()
        {
            stop.Cancel();
            lock (gate)
            {
                foreach (var queue in new IEnumerable<Request>[] { sent, waiting })
                    foreach (var request in queue)
                        request.Answer.TrySetException(new NoAnswerException("the client is closed"));
            }
        }

        private async Task StayConnected()
        {
            TimeSpan delay = FirstDelay;
            bool full = false;  // the service had too many games
            while (!stop.IsCancellationRequested)
            {
                using (var socket = new ClientWebSocket())
                {
                    try
                    {
                        if (token != null) socket.Options.SetRequestHeader("Authorization", "Bearer " + token);
                        await Connect(socket).ConfigureAwait(false);
                        Interlocked.Increment(ref connections);
                        if (!full) delay = FirstDelay;  // otherwise delays continue to grow, since it may still be full
                        problem = "";
                        await Exchange(socket).ConfigureAwait(false);
                    }
                    catch (Exception error)  // whatever it is, connect again
                    {
                        problem = Describe(error);
                    }
                    full = (int?)socket.CloseStatus == TryAgainLater;
                    if (socket.CloseStatus != null) problem = socket.CloseStatusDescription ?? "";
                    socket.Abort();
                }
                double share;  // random, so that clients that were disconnected together do not all reconnect at once
                lock (gate) share = 0.5 + random.NextDouble() / 2;
                await Pause(TimeSpan.FromTicks((long)(delay.Ticks * share))).ConfigureAwait(false);
                delay = delay + delay < MaxDelay ? delay + delay : MaxDelay;
            }
        }

        private async Task Connect(ClientWebSocket socket)
        {
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(stop.Token))
            {
                limit.CancelAfter(ConnectTimeout);
                await socket.ConnectAsync(url, limit.Token).ConfigureAwait(false);
            }
        }

        /// <summary>Exchange messages until the connection breaks; unanswered messages are resent first, in order.</summary>
        private async Task Exchange(ClientWebSocket socket)
        {
            lock (gate)
            {
                var unanswered = new List<Request>(sent);
                sent.Clear();
                for (int last = unanswered.Count - 1; last >= 0; last--) waiting.AddFirst(unanswered[last]);
            }
            using (var broken = CancellationTokenSource.CreateLinkedTokenSource(stop.Token))
            {
                var sender = Send(socket, broken.Token);
                try
                {
                    await Receive(socket, broken.Token).ConfigureAwait(false);
                }
                finally
                {
                    broken.Cancel();
                    await Task.WhenAny(sender).ConfigureAwait(false);
                    GC.KeepAlive(sender.Exception);  // observed: the receiver reports why the connection broke
                }
            }
        }

        private async Task Send(ClientWebSocket socket, CancellationToken broken)
        {
            while (true)
            {
                for (var request = NextToSend(socket); request != null; request = NextToSend(socket))
                    await socket.SendAsync(request.Text, WebSocketMessageType.Text, true, broken).ConfigureAwait(false);
                await wake.WaitAsync(broken).ConfigureAwait(false);
            }
        }

        private Request NextToSend(ClientWebSocket socket)
        {
            lock (gate)
            {
                while (waiting.Count > 0 && sent.Count < MaxUnanswered)
                {
                    var request = waiting.First.Value;
                    waiting.RemoveFirst();
                    if (request.Done) continue;  // it timed out
                    request.Socket = socket;
                    sent.Enqueue(request);
                    return request;
                }
                return null;
            }
        }

        private async Task Receive(ClientWebSocket socket, CancellationToken broken)
        {
            var buffer = new byte[1 << 14];
            while (true)
            {
                using (var message = new MemoryStream())
                {
                    WebSocketReceiveResult part;
                    do
                    {
                        part = await socket.ReceiveAsync(new ArraySegment<byte>(buffer), broken).ConfigureAwait(false);
                        if (part.MessageType == WebSocketMessageType.Close) return;
                        message.Write(buffer, 0, part.Count);
                        if (message.Length > MaxAnswer) throw new IOException("an answer is too long");
                    } while (!part.EndOfMessage);
                    var text = Utf8.GetString(message.GetBuffer(), 0, (int)message.Length);
                    lock (gate)
                    {
                        if (sent.Count == 0) throw new IOException("an answer arrived without a request");
                        problem = "";
                        sent.Dequeue().Answer.TrySetResult(text);  // without effect if the request timed out
                    }
                }
                wake.Release();
            }
        }

        private async Task Pause(TimeSpan delay)
        {
            try { await Task.Delay(delay, stop.Token).ConfigureAwait(false); }
            catch (OperationCanceledException) { }  // disposed
        }

        private static string TooLong(int bytes)
        {
            return "the message has " + bytes + " bytes; the service accepts " + MaxMessage;
        }

        private NoAnswerException TimedOut()
        {
            var what = "no answer from " + address + " for " + timeout.TotalSeconds.ToString("0.###") + " s";
            return new NoAnswerException(problem.Length > 0 ? what + ": " + problem : what);
        }

        /// <summary>The innermost cause; the outer ones only say that the connection failed.</summary>
        private static string Describe(Exception error)
        {
            while (error.InnerException != null) error = error.InnerException;
            return error.Message;
        }

        private static void DropTimedOut(LinkedList<Request> requests)
        {
            for (var node = requests.First; node != null;)
            {
                var next = node.Next;
                if (node.Value.Done) requests.Remove(node);
                node = next;
            }
        }

        private static string RandomKey()
        {
            var bytes = new byte[12];
            using (var source = RandomNumberGenerator.Create()) source.GetBytes(bytes);
            return BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();
        }
    }
}
